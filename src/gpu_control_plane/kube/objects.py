"""The shape every Kubernetes object shares, and how a Python type says which resource it is.

Objects are frozen and hold only the fields their type names: what a controller does not read is never kept.
`gc=False` is safe because decoded JSON has no cycles; it keeps 40,000 objects out of the collector's way.
"""

from datetime import datetime
from typing import ClassVar, Final, NewType

import msgspec

FieldManager = NewType("FieldManager", str)

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` remembers an object; a copy on another object would mislead it."""


class Resource(msgspec.Struct, frozen=True):
    """Where a kind is served: everything the URL of an object needs."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """`plural.group`, the name by which people and CRDs know the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        parts = [prefix, scope, "/", self.plural]
        if name:
            parts += ["/", name]
        if subresource:
            parts += ["/", subresource]
        return "".join(parts)


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """An object's identity inside its kind: what queues carry and caches are keyed by."""

    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


def controlled_by(resource: Resource, name: str, uid: str) -> OwnerReference:
    """The reference of an object to the one that made it, with which it goes."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=name,
        uid=uid,
        controller=True,
        block_owner_deletion=True,
    )


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """Metadata without `managedFields`, which is half of an object's bytes and of no use to a controller."""

    name: str = ""
    generate_name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Object(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """Base of every kind. A subclass names its `resource` and the fields it wants to see."""

    resource: ClassVar[Resource]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return Key(self.metadata.name, self.metadata.namespace)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def controller_of(item: Object) -> OwnerReference | None:
    """The owner that made the object."""
    return next((owner for owner in item.metadata.owner_references if owner.controller), None)


class Condition(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """`metav1.Condition`, the one shape all our conditions have."""

    merge_key: ClassVar[str] = "type"
    """Lists of conditions have several writers, each owning those of its types."""

    type: str
    status: str
    reason: str
    message: str = msgspec.field(default_factory=str)
    """Written even when empty: Kubernetes' own shape, and so other products' schemas, require it."""
    last_transition_time: datetime
    observed_generation: int = 0
