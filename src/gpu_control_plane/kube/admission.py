"""Admission reviews: what the API server asks a webhook, and what its handler may respond.

Handlers see typed requests and return an `AdmissionResponse`; the AdmissionReview of the wire is known to this module
alone. A handler must be quick, must change nothing on a dry run and may be asked twice about the same object.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus

import msgspec

from gpu_control_plane.kube.json_patch import Json, diff
from gpu_control_plane.kube.objects import Object

API_VERSION = "admission.k8s.io/v1"


class Operation(StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes the request."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class RequestOptions(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Of CreateOptions, UpdateOptions, PatchOptions and DeleteOptions what a handler may care for."""

    kind: str = ""
    field_manager: str = ""
    field_validation: str = ""
    propagation_policy: str | None = None
    grace_period_seconds: int | None = None


class AdmissionRequest[T: Object](msgspec.Struct, frozen=True, kw_only=True):
    """One object about to be written. `object` is None on DELETE, `old_object` on CREATE.

    The typed objects hold only the fields their type names; `raw` and `raw_old` are the whole as JSON text.
    """

    uid: str
    operation: Operation
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str
    name: str
    namespace: str | None
    user: UserInfo
    object: T | None
    old_object: T | None
    dry_run: bool
    options: RequestOptions
    raw: bytes
    raw_old: bytes

    def document(self) -> dict[str, Json]:
        """The whole object, anew at each call and free to be changed: what a mutating handler edits and returns."""
        document: dict[str, Json] = msgspec.json.decode(self.raw) if self.raw else {}
        return document


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler responds; make it with `allow`, `deny` or `change`."""

    allowed: bool
    message: str = ""
    reason: str = ""
    code: int = HTTPStatus.OK
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = {}
    document: Mapping[str, Json] | None = None


type Handler[T: Object] = Callable[[AdmissionRequest[T]], Awaitable[AdmissionResponse]]


def allow(*, warnings: Sequence[str] = (), audit: Mapping[str, str] | None = None) -> AdmissionResponse:
    """Admit the object as it is. kubectl shows the warnings."""
    return AdmissionResponse(allowed=True, warnings=tuple(warnings), audit=audit or {})


def change(
    document: Mapping[str, Json], *, warnings: Sequence[str] = (), audit: Mapping[str, str] | None = None
) -> AdmissionResponse:
    """Admit the object as `document`, an edited `AdmissionRequest.document()`. Only what differs is sent back."""
    return AdmissionResponse(allowed=True, document=document, warnings=tuple(warnings), audit=audit or {})


def deny(
    message: str,
    *,
    code: int = HTTPStatus.FORBIDDEN,
    reason: str = "Forbidden",
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
) -> AdmissionResponse:
    """Refuse, with a sentence that says what to do about it."""
    return AdmissionResponse(
        allowed=False, message=message, code=code, reason=reason, warnings=tuple(warnings), audit=audit or {}
    )


class BadReviewError(Exception):
    """The body is no AdmissionReview that this endpoint understands."""


class _Request(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    uid: str
    operation: Operation
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str | None = None
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None
    options: RequestOptions | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    reason: str
    code: int
    status: str = "Failure"


class _WireResponse(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class _ReviewResponse(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    response: _WireResponse
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"


_reviews = msgspec.json.Decoder(_Review)


def parse_review[T: Object](body: bytes, kind: type[T]) -> AdmissionRequest[T]:
    """Read what the API server sent, with its objects as `kind`."""
    try:
        body.decode()  # The decoder looks only at the fields it needs; a handler may edit all of them.
        review = _reviews.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReviewError(f"the body is not an AdmissionReview: {error}") from None
    request = review.request
    if review.api_version != API_VERSION or review.kind != "AdmissionReview" or request is None:
        raise BadReviewError(
            f'expected an AdmissionReview request of {API_VERSION}, got "{review.kind}" of "{review.api_version}"'
        )
    raw, raw_old = _present(request.object), _present(request.old_object)
    try:
        new = msgspec.json.decode(raw, type=kind) if raw else None
        old = msgspec.json.decode(raw_old, type=kind) if raw_old else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReviewError(f"the object is no {kind.resource.kind} as this server knows it: {error}") from None
    return AdmissionRequest(
        uid=request.uid,
        operation=request.operation,
        kind=request.kind,
        resource=request.resource,
        sub_resource=request.sub_resource,
        name=request.name,
        namespace=request.namespace or None,
        user=request.user_info,
        object=new,
        old_object=old,
        dry_run=request.dry_run or False,
        options=request.options or RequestOptions(),
        raw=raw,
        raw_old=raw_old,
    )


def encode_review[T: Object](request: AdmissionRequest[T], response: AdmissionResponse) -> bytes:
    """The AdmissionReview to send back."""
    status = None
    if not response.allowed:
        status = _Status(message=response.message, reason=response.reason, code=response.code)
    patch = diff(request.document(), dict(response.document)) if response.document is not None else ()
    wire = _WireResponse(
        uid=request.uid,
        allowed=response.allowed,
        status=status,
        patch_type="JSONPatch" if patch else None,
        patch=msgspec.json.encode(patch) if patch else None,
        warnings=response.warnings,
        audit_annotations=response.audit,
    )
    return msgspec.json.encode(_ReviewResponse(response=wire))


def _present(raw: msgspec.Raw) -> bytes:
    content = bytes(raw)
    return b"" if content == b"null" else content
