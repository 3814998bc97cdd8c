"""What the kinds share: how a part of an object is written, and the strings that occur in several of them.

Every default in a status stands for absence, so encoding a status gives exactly the fields its writer owns. Only
fields of a spec that carry an API default differ from absence.
"""

import re
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from gpu_control_plane.kube.fields import Rule, about

_ACRONYMS: Final = {
    "id": "ID",
    "ids": "IDs",
    "mib": "MiB",
    "ttl": "TTL",
    "pid": "PID",
    "uid": "UID",
    "crd": "CRD",
    "pci": "PCI",
    "fs": "FS",
}

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}

DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
CARD_UUID: Final = "^[A-Za-z0-9-]{1,96}$"
PCI_ADDRESS: Final = r"^([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$"


def wire_name(name: str) -> str:
    """`memory_mib` as `memoryMiB`, `inventory_id` as `inventoryID`: how an attribute is called in YAML."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


class Part(msgspec.Struct, frozen=True, rename=wire_name, gc=False, kw_only=True, omit_defaults=True):
    """Base of everything inside an object of ours."""


NodeName = Annotated[str, about("Name of the Node.", minLength=1, maxLength=253)]
InventoryID = Annotated[str, about("Identity of a card: the name of its GPUDevice.", minLength=1, maxLength=253)]
PCIAddress = Annotated[
    str, about("PCI address as Linux writes it, such as 0000:65:00.0.", pattern=PCI_ADDRESS, maxLength=16)
]
PoolName = Annotated[str, about("Name of a GPUPool.", minLength=1, maxLength=63)]
ResourceName = Annotated[
    str, about("Extended resource that pods ask for, such as gpu.deckhouse.io/training.", minLength=1, maxLength=253)
]
Namespace = Annotated[str, about("Name of a namespace.", minLength=1, maxLength=63)]
NAMESPACE_RULE: Final = Rule(
    f"self.matches('{DNS_LABEL}')", "give the name of one namespace: lower-case letters, digits and '-'"
)


class PoolRef(Part, frozen=True, kw_only=True):
    """The pool a card belongs to."""

    name: Annotated[PoolName, about("Name of the GPUPool.")]


def immutable(what: str) -> Rule:
    """The rule that a required field keeps its first value."""
    return Rule("self == oldSelf", f"{what} cannot be changed: delete the object and create another")


def time_span(text: str) -> timedelta:
    """A duration as people write it, such as 90s or 1h30m."""
    parts = re.findall(r"(\d+)([smh])", text)
    return timedelta(seconds=sum(int(number) * _SECONDS[unit] for number, unit in parts))
