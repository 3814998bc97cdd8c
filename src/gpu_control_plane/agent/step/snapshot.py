"""Everything that one step of a node decides on, gathered at one moment, and what is remembered between two steps."""

from collections.abc import Mapping, Set
from datetime import datetime

import msgspec

from gpu_control_plane.agent.burnin.status import BurnInStatus
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.mig.apply import Outcome, PartitionTask
from gpu_control_plane.agent.step.advertising import UnusedCheck
from gpu_control_plane.agent.step.card_notices import NoticeMemory
from gpu_control_plane.agent.step.partitioning import PartitionAttempt
from gpu_control_plane.agent.step.recovery import RECOVERY, CardHealth, RecoveryPolicy
from gpu_control_plane.agent.units import CardID, ContainerDevices, Hold, PodDevices, ResourceName, Unit
from gpu_control_plane.agent.views import DeviceView, NodeStateView, NodeView
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Assignment


class KubeletSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet says, and which of its pods have processes."""

    allocations: tuple[ContainerDevices, ...] = ()
    """Its pod-resources List: init containers are not in it."""
    allocatable: Mapping[ResourceName, Set[str]] = {}
    """Its GetAllocatableResources: what it may allocate, by device ID."""
    in_flight: frozenset[Unit] = frozenset()
    """Units of Allocate calls under way, or answered and not in the List yet."""
    checkpoint: tuple[PodDevices, ...] | None = None
    """What its checkpoint records, init containers too, and pods that have ended since it was written; None while it
    cannot be read."""
    recorded_before: tuple[PodDevices, ...] = ()
    """What it recorded at Allocate calls since the last step: pods that the kubelet has forgotten leave it with the
    next allocation."""
    living: Set[str] = frozenset()
    """UIDs of the pods whose control group has processes."""


class BurnInSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How the burn-in tests of the node stand; the keys are UUIDs of cards."""

    enabled: bool = False
    seconds: float = 0.0
    """How long a test takes."""
    ready: bool = False
    """Whether tests can be started."""
    checked: bool = True
    """Whether the node's driver has passed its checks; burn-in waits for that where checks are made."""
    running: Mapping[str, str] = {}
    """What to say of each test that runs."""
    ended: Mapping[str, BurnInStatus] = {}
    """Results of tests that have ended."""
    obstacles: Mapping[str, str] = {}
    """Why a card cannot be tested now, as far as only the hardware tells."""


class StepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose about the step."""

    unpooled: ResourceName | None = None
    """The resource in which cards in no pool are advertised; None advertises them in none."""
    conflicting_resources: tuple[str, ...] = ()
    """Resources under which another plugin would offer the same cards, beside those that their vendor knows."""
    confirm_seconds: float = 30.0
    """For how long a kubelet that does not list what it was told of is asked again and again."""
    recovery: RecoveryPolicy = RECOVERY
    """How much proof a faulted card has to give before it returns."""


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The node, its hardware, its orders and its pods."""

    now: datetime
    monotonic: float
    node: NodeView
    state: NodeStateView | None
    """None until inventory has made the GPUNodeState."""
    devices: tuple[DeviceView, ...]
    hardware: HardwareSnapshot | None
    """None before the first probe."""
    driver_hung: bool = False
    """Whether a call into the driver does not return: what the last probe found may no longer be true."""
    kubelet: KubeletSnapshot | None
    """None while the kubelet does not answer."""
    injectable: frozenset[str] = frozenset()
    """The CDI names of the devices that a container can be given, as far as device files and driver are present."""
    partitioned: tuple[tuple[PartitionTask, Outcome], ...] = ()
    """The MIG tasks of the last plan, which have been carried out since."""
    burn_in: BurnInSnapshot = BurnInSnapshot()
    settings: StepSettings = StepSettings()

    @property
    def orders(self) -> tuple[Assignment, ...]:
        return self.state.spec.assignments if self.state else ()

    @property
    def generation(self) -> int:
        """The generation of the orders."""
        return self.state.metadata.generation if self.state else 0


class CheckpointRewrite(msgspec.Struct, frozen=True):
    """The kubelet was last made to write its checkpoint anew."""

    doubted: frozenset[tuple[Unit, str, bool]]
    """The records of which it was to be found out whether they still hold: the unit, the UID of the pod, and whether
    the pod had processes."""
    at: float
    """By the monotonic clock."""


class NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan hands to the next step. A new agent begins with the holds alone, which are kept in a file: the
    kubelet's lists, the last `status.plugin` and the conditions of the cards hold what else must not be lost."""

    advertised: Mapping[Unit, UnusedCheck] | None = None
    """The units that the device plugins list; None before the first step."""
    own_resources: Mapping[ResourceName, float] = {}
    """Resources of the Node that are ours, each until a moment of the monotonic clock."""
    attempts: Mapping[CardID, PartitionAttempt] = {}
    health: Mapping[CardID, CardHealth] = {}
    verdicts: Mapping[CardID, Verdict] = {}
    notices: Mapping[CardID, NoticeMemory] = {}
    """What was told of cards that are worth a look."""
    judged_probe: int | None = None
    """The probe that the verdicts are about."""
    users: Mapping[CardID, tuple[User, ...]] | None = None
    """The containers on each card, as last known; None before the kubelet has first answered."""
    burn_ins: Mapping[CardID, BurnInStatus | None] = {}
    """How far the burn-in of each card is, by the place of the card."""
    tested: Mapping[str, BurnInStatus] = {}
    """The same by the UUID of the card, which it keeps in another place."""
    unconfirmed_since: float | None = None
    """Since when the kubelet has not listed as allocatable all that it was told of."""
    holds: frozenset[Hold] = frozenset()
    """Which pods hold which units, as last known."""
    forgotten_since: Mapping[Hold, float] = {}
    """The holds of them that the kubelet no longer knows of, and since when, by the monotonic clock."""
    checkpoint_rewrite: CheckpointRewrite | None = None
    """None while nothing that the checkpoint records is in doubt."""
