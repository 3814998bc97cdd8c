"""GPUDevice: one object per card, named after its place.

The spec is that place and never changes. Each part of the status has one writer: `inventory` the hardware, `pools`
the state, pool, reservation and history, the node's agent the rest. There are 40,000 of them in a large
cluster, and what a write costs the API server follows the number of fields: so the parts are atomic, and what all cards
of a model have in common is one string.
"""

import functools
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, ClassVar, Final

import msgspec

from gpu_control_plane.api.identity import MAX_NAME
from gpu_control_plane.api.names import GROUP, VERSION, DeviceCondition, Label
from gpu_control_plane.api.shapes import (
    Namespace,
    NodeName,
    Part,
    PCIAddress,
    PoolRef,
    ResourceName,
    immutable,
)
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Condition, Object, Resource

MAX_HISTORY: Final = 20
MAX_MESSAGE: Final = 1024

BUSY_PERCENT: Final = 5
"""Utilisation from which a card counts as computing. Readings are written when it is crossed, not with every number."""

_PCI_ID: Final = "^[0-9a-f]{4}$"
_PLACEMENT: Final = re.compile(
    r"(?P<name>[^=\s]+)=(?P<count>\d+)x(?P<memory>\d+)MiB/(?P<slices>\d+)@(?P<starts>[\d,]*)", re.ASCII
)
_NAME: Final = "self.spec.nodeName + '-' + self.spec.pciAddress.replace(':', '-').replace('.', '-')"


class Vendor(OpenEnum):
    """Who made a card."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    INTEL = "Intel"


class DeviceState(OpenEnum):
    """Where a card stands."""

    UNASSIGNED = "Unassigned", "in no pool."
    RESERVED = "Reserved", "promised to a pod that has not started yet."
    ASSIGNED = "Assigned", "in a pool and offered to pods, or in use by them."
    DRAINING = "Draining", "leaving its pool: no pod gets it, and those that have it run on."
    FAULTED = "Faulted", "out of service because of a hardware fault."


class DeviceSpec(Part, frozen=True, kw_only=True):
    """Where the card is."""

    node_name: Annotated[NodeName, about("Node the card is in.", immutable("spec.nodeName"))]
    pci_address: Annotated[
        PCIAddress,
        about(
            "PCI address of the card on its node, such as 0000:65:00.0: lower case, domain of four digits.",
            immutable("spec.pciAddress"),
        ),
    ]


class PCI(Part, frozen=True, kw_only=True):
    """The card on the PCI bus."""

    vendor: Annotated[str, about("Vendor id, four hex digits (10de is NVIDIA).", pattern=_PCI_ID)]
    device: Annotated[str, about("Device id, four hex digits (2335 is an H200).", pattern=_PCI_ID)]
    class_: Annotated[str, about("Class, four hex digits: 0302 compute, 0300 graphics.", pattern=_PCI_ID)]
    address: Annotated[PCIAddress, about("Address on the bus, as in the spec.")]


class MIGProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A size of MIG instance, and where on the card it may be placed."""

    name: str
    """As the driver calls it, such as 1g.18gb+me."""
    count: int
    """The most instances of it that fit on the card."""
    memory_mib: int
    slices: int
    """Memory slices that one instance occupies."""
    starts: tuple[int, ...] = ()
    """Memory slices at which an instance may start."""

    def __str__(self) -> str:
        starts = ",".join(map(str, self.starts))
        return f"{self.name}={self.count}x{self.memory_mib}MiB/{self.slices}@{starts}"


class MIGCapability(Part, frozen=True, kw_only=True):
    """What the card can do about MIG, and whether it does."""

    capable: Annotated[bool, about("Whether the card can be partitioned into MIG instances.")]
    enabled: Annotated[bool, about("Whether MIG mode is on.")]
    placements: Annotated[
        str | None,
        about(
            "Instances it can be partitioned into, separated by spaces: <profile>=<most instances>x<memory>MiB/"
            "<memory slices>@<slices at which one may start>, such as 1g.18gb=7x16384MiB/1@0,1,2,3,4,5,6.",
            maxLength=2048,
        ),
    ] = None

    @classmethod
    def of(cls, profiles: Iterable[MIGProfile], *, enabled: bool) -> "MIGCapability":
        """The capability of a card with these profiles; one without any cannot be partitioned."""
        placements = " ".join(map(str, profiles))
        return cls(capable=bool(placements), enabled=enabled, placements=placements or None)

    @property
    def profiles(self) -> tuple[MIGProfile, ...]:
        """The placements as data; what makes no sense is left out."""
        return _parsed(self.placements or "")


@functools.lru_cache(256)
def _parsed(placements: str) -> tuple[MIGProfile, ...]:
    """All cards of a model say the same, so it is read once."""
    found = (_PLACEMENT.fullmatch(part) for part in placements.split())
    return tuple(
        MIGProfile(
            name=match["name"],
            count=int(match["count"]),
            memory_mib=int(match["memory"]),
            slices=int(match["slices"]),
            starts=tuple(map(int, filter(None, match["starts"].split(",")))),
        )
        for match in found
        if match is not None
    )


class Hardware(Part, frozen=True, kw_only=True):
    """What the card is. Facts the card does not tell are absent."""

    vendor: Annotated[Vendor, about("Who made the card.")]
    product: Annotated[str, about("Model, as the driver calls it.", maxLength=128)]
    uuid: Annotated[str | None, about("The card's own identity; another one here is another card.", maxLength=96)] = (
        None
    )
    pci: PCI
    memory_mib: Annotated[int | None, about("Memory in MiB.", minimum=0)] = None
    compute_capability: Annotated[
        str | None,
        about("CUDA compute capability, such as 9.0.", pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$", maxLength=5),
    ] = None
    architecture: Annotated[str | None, about("Architecture, such as Hopper.", maxLength=32)] = None
    numa_node: Annotated[
        int | None,
        about("NUMA node the card hangs on; absent where the machine does not say.", minimum=0, maximum=1023),
    ] = None
    nvlink_peers: Annotated[
        tuple[PCIAddress, ...],
        about("Cards of the same node reached over NVLink, by their addresses.", unique=True, maxItems=64),
    ] = ()
    mig: Annotated[MIGCapability | None, about("What the card can do about MIG, and whether it does.")] = None


class Reservation(Part, frozen=True, kw_only=True):
    """A promise to a pod that was admitted but does not run yet."""

    token: Annotated[str, about("Token of the claim, found as an annotation on the pod.", minLength=1, maxLength=63)]
    holder: Annotated[
        str,
        about("Who is waiting: namespace/pod.", minLength=1, maxLength=320),
    ]
    expires_at: Annotated[datetime, about("When the promise ends by itself.")]


class User(Part, frozen=True, kw_only=True):
    """A container that holds units of the card."""

    namespace: Annotated[Namespace, about("Namespace of the pod.")]
    pod: Annotated[str, about("Name of the pod.", minLength=1, maxLength=253)]
    container: Annotated[str, about("Name of the container.", minLength=1, maxLength=63)]
    resource: Annotated[ResourceName, about("Resource under which it got them.")]
    units: Annotated[int, about("Units of the card it holds.", minimum=1, maximum=64)]


class Telemetry(Part, frozen=True, kw_only=True):
    """The last readings worth telling. Metrics hold the rest."""

    temperature: Annotated[int | None, about("Temperature of the chip in degrees Celsius.")] = None
    power: Annotated[int | None, about("Power drawn in watts.", minimum=0)] = None
    utilisation: Annotated[int | None, about("Part of the time it was busy, in percent.", minimum=0, maximum=100)] = (
        None
    )
    memory_used: Annotated[int | None, about("Memory in use in MiB.", minimum=0)] = None
    ecc_errors: Annotated[int | None, about("Uncorrected memory errors since the driver was loaded.", minimum=0)] = None
    last_xid: Annotated[
        int | None, about("Code of the last XID, the driver's error report.", minimum=0, maximum=65535)
    ] = None
    at: Annotated[datetime, about("When these were read.")]


class BurnIn(Part, frozen=True, kw_only=True):
    """Which card the condition BurnedIn is about."""

    uuid: Annotated[str, about("The card that was tested: another one at its address is tested again.", maxLength=96)]
    ended_at: Annotated[datetime | None, about("When the test ended; absent while there was none.")] = None


class Change(Part, frozen=True, kw_only=True):
    """Something that happened to the card."""

    what: Annotated[str, about("What changed, such as Assigned to training.", minLength=1, maxLength=128)]
    who: Annotated[str, about("Component or person that changed it.", minLength=1, maxLength=253)]
    when: Annotated[datetime, about("When it changed.")]
    why: Annotated[str | None, about("Why, in a sentence.", maxLength=512)] = None


class DeviceStatus(Part, frozen=True, kw_only=True):
    """What is known about the card, and what is done with it."""

    state: Annotated[DeviceState | None, about("Where the card stands.")] = None
    pool_ref: Annotated[PoolRef | None, about("Pool the card is in.", atomic=True)] = None
    pending_reason: Annotated[str | None, about("Why the card is in no pool, in one word.", maxLength=64)] = None
    message: Annotated[
        str | None,
        about(
            "What people ask of the card, by annotation or label, and is not done: why, and what to do.",
            maxLength=MAX_MESSAGE,
        ),
    ] = None
    hardware: Annotated[
        Hardware | None, about("What the card is. Facts the card does not tell are absent.", atomic=True)
    ] = None
    reservation: Annotated[
        Reservation | None, about("Promise to a pod that was admitted but does not run yet.", atomic=True)
    ] = None
    used_by: Annotated[
        tuple[User, ...], about("Containers that hold units of the card, as the kubelet reports them.", maxItems=128)
    ] = ()
    telemetry: Annotated[
        Telemetry | None, about("Last readings worth telling; metrics hold the rest.", atomic=True)
    ] = None
    burn_in: Annotated[BurnIn | None, about("Which card the condition BurnedIn is about.", atomic=True)] = None
    history: Annotated[tuple[Change, ...], about("The latest changes, newest first.", maxItems=MAX_HISTORY)] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        about("Healthy: whether the card works. BurnedIn: whether it was tested.", keys=("type",), maxItems=16),
    ] = ()


class GPUDevice(Object, frozen=True, kw_only=True):
    """A GPU in a node. It joins a pool once the annotation gpu.deckhouse.io/assignment names that pool."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version=VERSION, kind="GPUDevice", plural="gpudevices", namespaced=False
    )
    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"size({_NAME}) > {MAX_NAME} || self.metadata.name == {_NAME}",
            "name the object <nodeName>-<pciAddress>, with ':' and '.' of the address written '-'",
            message_expression=f"'name the object ' + {_NAME} + ', after spec.nodeName and spec.pciAddress'",
        ),
    )

    spec: Annotated[DeviceSpec, about("Where the card is. It never changes.")]
    status: Annotated[DeviceStatus, about("What is known about the card, and what is done with it.")] = DeviceStatus()

    @property
    def ignored(self) -> bool:
        """Whether a person has taken the card out of service."""
        return self.metadata.labels.get(Label.IGNORE) == "true"


DEFINITION: Final = Definition(
    kind=GPUDevice,
    short_names=("gpu", "gpudev", "gdev"),
    categories=("gpus",),
    columns=(
        Column("Node", ".spec.nodeName", description="Node the card is in"),
        Column("Product", ".status.hardware.product", description="Model of the card"),
        Column("State", ".status.state", description="Unassigned, Reserved, Assigned, Draining or Faulted"),
        Column("Pool", ".status.poolRef.name", description="Pool the card is in"),
        Column("Reason", ".status.pendingReason", description="Why the card is in no pool"),
        Column(
            "Healthy",
            f'.status.conditions[?(@.type=="{DeviceCondition.HEALTHY}")].status',
            description="Whether the card works",
            priority=1,
        ),
        Column("Memory", ".status.hardware.memoryMiB", "integer", "Memory in MiB", priority=1),
        Column("UUID", ".status.hardware.uuid", description="The card's own identity", priority=1),
        Column("Address", ".spec.pciAddress", description="PCI address of the card", priority=1),
        Column("Namespace", ".status.usedBy[0].namespace", description="Namespace of the first pod on it", priority=1),
        Column("Pod", ".status.usedBy[0].pod", description="First pod that holds units of it", priority=1),
        Column("Busy", ".status.telemetry.utilisation", "integer", "Percent of the time, when last told", priority=1),
        AGE,
    ),
    selectable=(
        ".spec.nodeName",
        ".spec.pciAddress",
        ".status.state",
        ".status.poolRef.name",
        ".status.hardware.uuid",
    ),
)
