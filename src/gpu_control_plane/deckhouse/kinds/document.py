"""What all kinds share: how a document is written, and shapes that occur in several of them."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
ADDRESS = rf"({_OCTET}\.){{3}}{_OCTET}"

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=DNS_NAME,
        min_length=1,
        max_length=253,
        description="lower-case letters, digits, dashes and dots, such as a-name",
    ),
]
IPv4 = Annotated[str, msgspec.Meta(pattern=f"^{ADDRESS}$", description="an IPv4 address, such as 192.168.3.61")]
CIDR = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{ADDRESS}/([0-9]|[12][0-9]|3[0-2])$",
        description="an IPv4 network, such as 10.111.0.0/16",
    ),
]
AddressRange = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{ADDRESS}(/([0-9]|[12][0-9]|3[0-2])|-{ADDRESS})$",
        description="a network or a range, such as 192.168.3.200-192.168.3.209",
    ),
]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
type Labels = dict[str, str]


class Shape(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", gc=False
):
    """Base of everything inside a document. Defaults stand for absence."""


class Metadata(Shape, frozen=True, kw_only=True):
    name: Name
    namespace: Name | None = None
    labels: Labels = {}
    annotations: Labels = {}


class Document(Shape, frozen=True, kw_only=True):
    """One YAML document. The subclass says its kind; `is_secret` whether it holds what others must not read."""

    api_version: ClassVar[str]
    kind: ClassVar[str]
    holds_secret: ClassVar[bool] = False

    def to_builtins(self) -> dict[str, Any]:
        """As it stands in a file."""
        content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {"apiVersion": self.api_version, "kind": self.kind, **content}

    @property
    def is_secret(self) -> bool:
        return self.holds_secret

    @property
    def title(self) -> str:
        """How a sentence names it: `NodeGroup w-gpu`."""
        metadata = getattr(self, "metadata", None)
        return f"{self.kind} {metadata.name}" if isinstance(metadata, Metadata) else self.kind


class Taint(Shape, frozen=True, kw_only=True):
    key: Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class Toleration(Shape, frozen=True, kw_only=True):
    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class LabelExpression(Shape, frozen=True, kw_only=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Shape, frozen=True, kw_only=True):
    match_labels: Labels = {}
    match_expressions: tuple[LabelExpression, ...] = ()
