"""How a kind is served: the CustomResourceDefinition around the schema.

A `Definition` holds what a Python type cannot say about itself (short names, columns, selectable fields, older
versions) and turns into the manifest. The same input gives the same bytes, so that a stale file can be detected.
"""

from typing import Any, ClassVar, Final, Literal

import msgspec

from gpu_control_plane.kube.objects import Condition, Object, Resource
from gpu_control_plane.kube.schema import Schema, structural

ESTABLISHED: Final = "Established"
NAMES_ACCEPTED: Final = "NamesAccepted"


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """As much of a CRD as an installer reads: is it served, and who put it there."""

    class Status(msgspec.Struct, frozen=True, gc=False):
        conditions: tuple[Condition, ...] | None = None
        """None until the API server has looked at the CRD for the first time."""

    resource: ClassVar[Resource] = Resource(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        namespaced=False,
    )

    status: Status = Status()

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == kind), None)


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`; one of a priority above 0 appears with `-o wide` only."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0

    def manifest(self) -> dict[str, Any]:
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.priority:
            column["priority"] = self.priority
        return column


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


class Scale(msgspec.Struct, frozen=True):
    """Where the `scale` subresource finds its numbers."""

    spec_replicas: str
    status_replicas: str
    selector: str | None = None


class OlderVersion(msgspec.Struct, frozen=True):
    """A version that is still served but no longer stored; without a type of its own it shares the schema."""

    name: str
    kind: type[Object] | None = None
    warning: str | None = None
    served: bool = True


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a CRD says; `manifest` writes it out."""

    kind: type[Object]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    older: tuple[OlderVersion, ...] = ()
    status: bool = True
    scale: Scale | None = None
    singular: str | None = None
    list_kind: str | None = None

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def name(self) -> str:
        return self.resource.qualified_name

    def schema(self) -> Schema:
        return root_schema(self.kind)

    def manifest(self, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        """The CustomResourceDefinition as `kubectl apply` takes it."""
        resource = self.resource
        names: dict[str, Any] = {
            "kind": resource.kind,
            "listKind": self.list_kind or f"{resource.kind}List",
            "plural": resource.plural,
            "singular": self.singular or resource.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        if self.categories:
            names["categories"] = list(self.categories)
        return {
            "apiVersion": CustomResourceDefinition.resource.api_version,
            "kind": CustomResourceDefinition.resource.kind,
            "metadata": {"name": self.name} | ({"annotations": annotations} if annotations else {}),
            "spec": {
                "group": resource.group,
                "names": names,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "versions": [self._version(resource.version), *map(self._older, self.older)],
            },
        }

    def _version(self, name: str) -> dict[str, Any]:
        version: dict[str, Any] = {"name": name, "served": True, "storage": True}
        if self.columns:
            version["additionalPrinterColumns"] = [column.manifest() for column in self.columns]
        if self.selectable:
            version["selectableFields"] = [{"jsonPath": path} for path in self.selectable]
        if subresources := self._subresources():
            version["subresources"] = subresources
        return version | {"schema": {"openAPIV3Schema": self.schema()}}

    def _older(self, older: OlderVersion) -> dict[str, Any]:
        version = self._version(older.name) | {"served": older.served, "storage": False}
        if older.warning is not None:
            version |= {"deprecated": True, "deprecationWarning": older.warning}
        if older.kind is not None:
            version |= {"schema": {"openAPIV3Schema": root_schema(older.kind)}}
        return version

    def _subresources(self) -> dict[str, Any]:
        subresources: dict[str, Any] = {"status": {}} if self.status else {}
        if self.scale is not None:
            scale = {
                "specReplicasPath": self.scale.spec_replicas,
                "statusReplicasPath": self.scale.status_replicas,
            }
            subresources["scale"] = scale | ({"labelSelectorPath": self.scale.selector} if self.scale.selector else {})
        return subresources


def root_schema(kind: type[Object]) -> Schema:
    """The schema of a kind with the three fields the API server itself looks after."""
    schema = structural(kind)
    own = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    fields = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, **own}
    root: Schema = {key: value for key, value in schema.items() if not key.startswith("x-")}
    rules = {key: value for key, value in schema.items() if key.startswith("x-")}
    return root | {"properties": fields} | rules
