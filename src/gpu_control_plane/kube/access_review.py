"""What somebody may do, as a question to the API server: reviews of access, of others and of oneself."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from gpu_control_plane.kube.objects import Object, Resource


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A verb on a resource, in a namespace or in all of them."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, verb: str, what: type[Object] | str, *, namespace: str | None = None, name: str = "") -> "Right":
        """`what` is a kind, or a name such as `pods/eviction` or `gpudevices.gpu.deckhouse.io`."""
        if not isinstance(what, str):
            what = what.resource.qualified_name
        qualified, _, subresource = what.partition("/")
        resource, _, group = qualified.partition(".")
        return cls(
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            namespace=namespace or "",
            name=name,
        )

    def __str__(self) -> str:
        what = ".".join(filter(None, (self.resource, self.group)))
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what}{f'/{self.subresource}' if self.subresource else ''}{where}"


class _AccessStatus(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = False


class SubjectAccessReview(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
    )

    status: _AccessStatus = _AccessStatus()


class SelfSubjectAccessReview(SubjectAccessReview, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
    )


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody, as the API server knows them."""

    name: str
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = {}


def service_account(namespace: str, name: str) -> Subject:
    """The ServiceAccount as which pods speak to the API server."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Subject(name=f"system:serviceaccount:{namespace}:{name}", groups=groups)


def spec_of(right: Right, subject: Subject | None = None) -> dict[str, object]:
    """The question whether this subject has the right; without one, whether the asker has it."""
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: dict[str, object] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    if subject is not None:
        spec |= {"user": subject.name, "uid": subject.uid, "groups": subject.groups, "extra": subject.extra}
    return spec
