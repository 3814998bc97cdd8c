"""What one step of a node leads to. Whoever carries a plan out decides nothing more."""

import enum
from collections.abc import Mapping

import msgspec

from gpu_control_plane.agent.burnin.status import BurnInStatus
from gpu_control_plane.agent.kubelet.interface import Device
from gpu_control_plane.agent.mig.apply import PartitionTask
from gpu_control_plane.agent.step.card_notices import Notice
from gpu_control_plane.agent.step.snapshot import NodeMemory
from gpu_control_plane.agent.units import CardID, Hold, ResourceName, Unit
from gpu_control_plane.agent.views import DeviceApplyConfiguration, DeviceView
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Plugin


class Stage(enum.Enum):
    """How far the step could be decided."""

    UNPROBED = enum.auto()
    """The hardware has not been seen yet: only the pause is answered."""
    KUBELET_AWAY = enum.auto()
    """The kubelet does not answer: cards are reported, nothing else changes."""
    PARTITION = enum.auto()
    """Cards have to be partitioned first; then the hardware is probed, if that changed it, and the step made anew."""
    COMPLETE = enum.auto()


class DeviceReport(msgspec.Struct, frozen=True):
    """A GPUDevice whose status differs from what is known of the card."""

    device: DeviceView
    desired: DeviceApplyConfiguration
    new_fault: str | None
    """The reason, if the card has just become unhealthy."""


class Allocatable(msgspec.Struct, frozen=True, kw_only=True):
    """What Allocate may hand out until the next plan."""

    units: frozenset[Unit] = frozenset()
    held: frozenset[Unit] = frozenset()
    holds: frozenset[Hold] = frozenset()
    """Pods that may still have processes on a unit, whatever the kubelet says."""
    numa_ignored: frozenset[CardID] = frozenset()
    """Cards whose NUMA node plays no part: their order says so."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which it is carried out."""

    stage: Stage
    memory: NodeMemory
    paused: str | None = None
    """Why the driver has to be released, such as `paused-for-driver-upgrade`; None when it may be held."""
    clear_errors: tuple[str, ...] = ()
    """PCI addresses of cards that have just recovered: their old error reports must not count as new."""
    notices: tuple[tuple[DeviceView, Notice], ...] = ()
    """What an Event has to tell of cards, as found by a probe that is judged now."""
    next_probe: float | None = None
    """When the hardware has to be probed again at the latest, in seconds since 1970."""
    partition: tuple[PartitionTask, ...] = ()
    cdi_held: frozenset[str] = frozenset()
    """CDI names that pods hold: the CDI spec keeps them whatever the hardware shows, and is written before the rest."""
    allocatable: Allocatable = Allocatable()
    kubelet_first: bool = False
    """The kubelet is told before the API server. As soon as `status.plugin` no longer lists a card, or
    `status.quiesced` is there, others rely on it. In all other steps the API server comes first: it must know every
    resource that the kubelet knows."""
    device_lists: Mapping[ResourceName, tuple[Device, ...]] = {}
    """What the device plugins list; a resource that is not here is withdrawn."""
    send_again: bool = False
    """The kubelet is sent a list even if none has changed: it then writes its checkpoint anew."""
    plugin: Plugin | None = None
    """`status.plugin`; None leaves it as it is."""
    carried_out: int | None = None
    """The generation of the orders, once the kubelet is told of all that can be had of them."""
    removed: bool = False
    """Units have left a resource."""
    reports: tuple[DeviceReport, ...] = ()
    burn_ins: Mapping[CardID, BurnInStatus | None] = {}
    """How far the burn-in of each card is."""
    burn_in_starts: Mapping[CardID, str] = {}
    """The cards whose test has to be started now, and what is said of each while it runs."""
    holders: Mapping[Unit, User] = {}
    """The units that containers hold, by the kubelet's list."""
    held: Mapping[Unit, str] = {}
    """Units that must not be given to another pod, and who has them: also those of pods that are just starting."""
    look_again: float | None = None
    """Seconds until the next step is due if nothing changes."""
