"""Typed reads and writes of Kubernetes objects.

A write that depends on what was read carries the resourceVersion it was read at; a write that owns fields is a
server-side apply under the component's field manager. There is no plain update: it would silently overwrite others.
An object that is wholly ours may be replaced, at the resourceVersion it was read at.
"""

import functools
import re
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Protocol, Self, cast

import msgspec

from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.errors import Conflict, NotFound, StaleWrite
from gpu_control_plane.kube.logs import get_logger
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import FieldManager, Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.recovery import Recovery
from gpu_control_plane.kube.transport import Call, Fence, Transport

PAGE = 500

_LABEL_TERM = re.compile(r"(?P<key>[\w./-]+)(?:==?(?P<value>[\w.-]*))?")
_PRINTED = "application/json;as=Table;g=meta.k8s.io;v=v1"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_log = get_logger("kube.client")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page[T: Object](msgspec.Struct, frozen=True):
    """A part of a list; all parts of one list show the same moment."""

    items: list[T]
    metadata: ListMeta = ListMeta()
    unreadable: list[Key] = []
    """Objects that exist and do not fit their type; they are not among the items."""


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind: all of them, or those of a namespace that match selectors."""

    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None

    def params(self) -> dict[str, str]:
        pairs = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return {name: value for name, value in pairs if value}

    def surely_selects(self, item: Object) -> bool:
        """Whether `item` is certain to be selected: by its namespace, and by labels that are asked for one by one.
        Other label selectors and field selectors only the API server evaluates."""
        if self.fields or self.namespace not in (None, item.metadata.namespace):
            return False
        return not self.labels or all(_surely_has(item.metadata.labels, term) for term in self.labels.split(","))


def _surely_has(labels: Mapping[str, str], term: str) -> bool:
    """Whether labels fulfil one term of a selector of the form `key` or `key=value`."""
    found = _LABEL_TERM.fullmatch(term)
    if found is None or found["key"] not in labels:
        return False
    return found["value"] is None or labels[found["key"]] == found["value"]


EVERYTHING = Selection()


class PrintedColumn(msgspec.Struct, frozen=True):
    name: str


class PrintedRow(msgspec.Struct, frozen=True):
    cells: list[str | int | float | bool | None]


class Printed(msgspec.Struct, frozen=True, rename="camel"):
    """A table that the API server made of objects; an empty cell is None."""

    column_definitions: list[PrintedColumn]
    rows: list[PrintedRow] = []


_PRINTED_TABLE = msgspec.json.Decoder(Printed)


class WriteObserver(Protocol):
    """Sees what the API server answers to the writes of a client."""

    def written(self, written: Object, answer: bytes) -> None:
        """The object as it is after the write; `answer` is the same for those who read it as another type."""
        ...

    def deleted(self, resource: Resource, key: Key, uid: str) -> None:
        """The object is gone."""
        ...


class Client:
    """Typed access to one API server. Use inside `async with`; copies made by `fenced` share its connections."""

    def __init__(
        self,
        config: Config,
        *,
        metrics: Metrics | None = None,
        timeout: float = 30.0,
        recovery: Recovery | None = None,
    ) -> None:
        self.config = config
        self.recovery = recovery or Recovery()
        """By which the watches of this client come back after an outage."""
        self.metrics = metrics or Metrics()
        self.transport = Transport(config, self.metrics, timeout=timeout)
        self._fence: Fence | None = None
        self._observer: WriteObserver | None = None

    async def __aenter__(self) -> Self:
        await self.transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.__aexit__(kind, error, trace)

    def fenced(self, fence: Fence | None, observer: WriteObserver | None = None) -> "Client":
        """This client with `fence` called before every attempt to write, which raises when writing is no longer
        allowed, and `observer` called with every answer."""
        copy = object.__new__(Client)
        copy.config, copy.metrics, copy.transport = self.config, self.metrics, self.transport
        copy.recovery = self.recovery
        copy._fence, copy._observer = fence, observer
        return copy

    def for_config(self, config: Config) -> "Client":
        """This client for another identity at the same server. It shares the connections, so use it while this one is
        open."""
        copy = self.fenced(None)
        copy.config, copy.transport = config, self.transport.for_config(config)
        return copy

    async def get[T: Object](self, kind: type[T], name: str, namespace: str | None = None) -> T:
        resource = kind.resource
        call = Call(method="GET", path=resource.path(namespace, name), verb="get", resource=resource.qualified_name)
        return decoder(kind).decode(await self.transport.send(call))

    async def pages[T: Object](
        self, kind: type[T], selection: Selection = EVERYTHING, *, limit: int = PAGE
    ) -> AsyncGenerator[Page[T]]:
        """List in pages; the API server keeps them consistent with each other. An object that does not fit its type is
        passed over, counted and named in the log."""
        resource = kind.resource
        params = selection.params() | {"limit": str(limit)}
        while True:
            call = Call(
                method="GET",
                path=resource.path(selection.namespace),
                verb="list",
                resource=resource.qualified_name,
                params=params,
                compressed=True,
            )
            page = self._page(kind, await self.transport.send(call))
            yield page
            if not page.metadata.continue_:
                return
            params = params | {"continue": page.metadata.continue_}

    def pass_over(self, kind: type[Object], raw: msgspec.Raw, error: msgspec.ValidationError) -> Object:
        """Count and name an object that does not fit its type, which must not hide the others; what can be read of
        it."""
        resource = kind.resource.qualified_name
        self.metrics.watch_undecodable.labels(resource).inc()
        found = decoder(Object).decode(raw)
        _log.error("object skipped, it does not fit its type", resource=resource, name=str(found.key), why=str(error))
        return found

    def _page[T: Object](self, kind: type[T], answer: bytes) -> Page[T]:
        try:
            return _page_decoder(kind).decode(answer)
        except msgspec.ValidationError:
            raw = _RAW_PAGE.decode(answer)
        page = Page[T]([], raw.metadata, [])
        for item in raw.items:
            try:
                page.items.append(decoder(kind).decode(item))
            except msgspec.ValidationError as error:
                page.unreadable.append(self.pass_over(kind, item, error).key)
        return page

    async def list[T: Object](self, kind: type[T], selection: Selection = EVERYTHING) -> list[T]:
        """Everything that matches, at once: for commands and tests. Controllers read from a cache."""
        return [item async for page in self.pages(kind, selection) for item in page.items]

    async def names(
        self, kind: type[Object], selection: Selection = EVERYTHING, *, limit: int = PAGE
    ) -> tuple[str, ...]:
        """The first names of what matches, without the objects."""
        call = Call(
            method="GET",
            path=kind.resource.path(selection.namespace),
            verb="list",
            resource=kind.resource.qualified_name,
            params=selection.params() | {"limit": str(limit)},
            accept=_METADATA_ONLY,
        )
        return tuple(item.name for item in _page_decoder(Object).decode(await self.transport.send(call)).items)

    async def printed(self, kind: type[Object], selection: Selection = EVERYTHING) -> "Printed":
        """What the API server prints of each object, as `kubectl get -o wide` has it: a fraction of their bytes."""
        call = Call(
            method="GET",
            path=kind.resource.path(selection.namespace),
            verb="list",
            resource=kind.resource.qualified_name,
            params=selection.params() | {"includeObject": "None"},
            accept=_PRINTED,
            compressed=True,
        )
        return _PRINTED_TABLE.decode(await self.transport.send(call))

    async def create[T: Object](self, kind: type[T], body: object, namespace: str | None = None) -> T:
        """Create an object whose body names it (`metadata.name` or `metadata.generateName`)."""
        document = _document(kind.resource, body)
        answer = await self._write("POST", "create", kind, document, namespace=namespace)
        return self._written(kind, answer)

    async def try_create(self, kind: type[Object], body: object, namespace: str | None = None) -> None:
        """Ask whether an object could be created; nothing is written. `AlreadyExists` if there is one of its name."""
        call = Call(
            method="POST",
            path=kind.resource.path(namespace),
            verb="create",
            resource=kind.resource.qualified_name,
            params={"dryRun": "All"},
            body=msgspec.json.encode(_document(kind.resource, body)),
        )
        await self.transport.send(call)

    async def validate(
        self, kind: type[Object], body: Mapping[str, object], *, name: str, resource_version: str | None = None
    ) -> None:
        """Ask whether an object of the cluster could be created like this or, with `resource_version`, replaced;
        nothing is written. Fields that the kind does not have are errors, too."""
        exists = resource_version is not None
        document = _document(kind.resource, body, name=name, resource_version=resource_version)
        call = Call(
            method="PUT" if exists else "POST",
            path=kind.resource.path(name=name if exists else None),
            verb="update" if exists else "create",
            resource=kind.resource.qualified_name,
            params={"dryRun": "All", "fieldValidation": "Strict"},
            body=msgspec.json.encode(document),
        )
        await self.transport.send(call)

    async def apply[T: Object](
        self,
        kind: type[T],
        name: str,
        body: object,
        *,
        manager: FieldManager,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        force: bool = True,
    ) -> T:
        """Server-side apply: the body holds exactly the fields `manager` owns; what it no longer names is released."""
        document = _document(kind.resource, body, name=name, namespace=namespace, resource_version=resource_version)
        answer = await self._write(
            "PATCH",
            "apply",
            kind,
            document,
            name=name,
            namespace=namespace,
            subresource=subresource,
            content_type="application/apply-patch+yaml",
            params={"fieldManager": manager, "force": "true" if force else "false"},
            version=resource_version,
        )
        return self._written(kind, answer)

    async def patch[T: Object](
        self,
        kind: type[T],
        name: str,
        body: Mapping[str, object],
        *,
        resource_version: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """Merge patch. With `resource_version` it is guarded: `Conflict` if the object has changed since."""
        if resource_version is not None:
            metadata = body.get("metadata", {})
            assert isinstance(metadata, Mapping)  # noqa: S101 - a patch whose metadata is no object is a bug
            body = {**body, "metadata": {**metadata, "resourceVersion": resource_version}}
        answer = await self._write(
            "PATCH",
            "patch",
            kind,
            body,
            name=name,
            namespace=namespace,
            subresource=subresource,
            content_type="application/merge-patch+json",
            version=resource_version,
        )
        return self._written(kind, answer)

    async def replace[T: Object](
        self, kind: type[T], name: str, body: object, *, resource_version: str, namespace: str | None = None
    ) -> T:
        """Replace the object by `body`: fields it does not name are removed. `Conflict` if it has changed since."""
        document = _document(kind.resource, body, name=name, namespace=namespace, resource_version=resource_version)
        answer = await self._write(
            "PUT", "update", kind, document, name=name, namespace=namespace, version=resource_version
        )
        return self._written(kind, answer)

    async def post(
        self, kind: type[Object], name: str, subresource: str, body: object, *, namespace: str | None = None
    ) -> None:
        """Ask for something by a subresource, such as a pod's eviction; the answer holds nothing of use."""
        await self._write("POST", "create", kind, body, name=name, namespace=namespace, subresource=subresource)

    async def delete(
        self,
        kind: type[Object],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; `uid` and `resource_version` make sure that it is still the one that was read."""
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in given.items() if value}
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            **({"preconditions": preconditions} if preconditions else {}),
        }
        key = Key(name, namespace)
        try:
            answer = await self._write(
                "DELETE", "delete", kind, body, name=name, namespace=namespace, version=resource_version
            )
        except NotFound as error:
            if uid is not None and not error.resource_missing:
                self._deleted(kind, key, uid)
            raise
        outcome = _DELETE_OUTCOME.decode(answer)
        if outcome.metadata.deletion_timestamp is None:
            self._deleted(kind, key, uid or outcome.metadata.uid or outcome.details.uid)
        else:
            # Finalizers or a grace period keep it for a while.
            self._written(kind, answer)

    def _written[T: Object](self, kind: type[T], answer: bytes) -> T:
        written = decoder(kind).decode(answer)
        if self._observer is not None:
            self._observer.written(written, answer)
        return written

    def _deleted(self, kind: type[Object], key: Key, uid: str) -> None:
        if self._observer is not None and uid:
            self._observer.deleted(kind.resource, key, uid)

    async def _write(
        self,
        method: str,
        verb: str,
        kind: type[Object],
        body: object,
        *,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        version: str | None = None,
    ) -> bytes:
        """Send a write; a conflict says which `version` came too late, if the write was bound to one."""
        call = Call(
            method=method,
            path=kind.resource.path(namespace, name, subresource),
            verb=verb,
            resource=kind.resource.qualified_name,
            params=params or {},
            body=msgspec.json.encode(body),
            content_type=content_type,
        )
        try:
            return await self.transport.send(call, self._fence)
        except Conflict as error:
            if version is not None and name is not None:
                error.stale_write = StaleWrite(kind, Key(name, namespace), version)
            raise


def _document(
    resource: Resource,
    body: object,
    *,
    name: str | None = None,
    namespace: str | None = None,
    resource_version: str | None = None,
) -> dict[str, object]:
    """The body as the wire wants it: with its type, and with the identity the caller gave."""
    fields: dict[str, object] = msgspec.to_builtins(body)
    identity = {"name": name, "namespace": namespace, "resourceVersion": resource_version}
    given = {key: value for key, value in identity.items() if value is not None}
    metadata = fields.get("metadata") or {}
    assert isinstance(metadata, dict)  # noqa: S101 - a body whose metadata is no object is a bug
    return {
        **fields,
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**metadata, **given},
    }


def decoder[T: Object](kind: type[T]) -> msgspec.json.Decoder[T]:
    """The one decoder of a kind; making it takes longer than using it."""
    return cast("msgspec.json.Decoder[T]", _made_decoder(kind))


def _page_decoder[T: Object](kind: type[T]) -> msgspec.json.Decoder[Page[T]]:
    return cast("msgspec.json.Decoder[Page[T]]", _made_decoder(Page[kind]))  # type: ignore[valid-type]


class _RawPage(msgspec.Struct, frozen=True):
    """A page before its objects are read one by one."""

    items: list[msgspec.Raw]
    metadata: ListMeta = ListMeta()


_RAW_PAGE = msgspec.json.Decoder(_RawPage)


class _StatusDetails(msgspec.Struct, frozen=True):
    uid: str = ""


class _DeleteOutcome(msgspec.Struct):
    """What a deletion is answered with: a Status, or the object, which still exists if it has a deletionTimestamp."""

    details: _StatusDetails = _StatusDetails()
    metadata: ObjectMeta = ObjectMeta()


_DELETE_OUTCOME = msgspec.json.Decoder(_DeleteOutcome)


@functools.cache
def _made_decoder(shape: object) -> object:
    return msgspec.json.Decoder(shape)
