"""Everything about one node that the next action of its upgrade is decided on, taken at one moment."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from gpu_control_plane.api.nvidia.names import TRUE, NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.fields import about

IDLE: Final = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.REQUIRED, UpgradeState.FAILED})
"""States in which nothing is done to a node. A failed one waits for a person or another driver."""

NEEDS_PODS: Final = frozenset(
    {UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_DELETION_REQUIRED, UpgradeState.DRAIN_REQUIRED}
)
"""States in which the pods of the node matter."""


class DriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that brings the driver to the node."""

    name: str
    uid: str = ""
    resource_version: str = ""
    """The resourceVersion that all this was read at."""
    daemonset: str = ""
    current: bool = True
    """Made from its DaemonSet's newest template."""
    revision_known: bool = True
    """Whether a revision of its DaemonSet has been seen. None has just after the DaemonSet was created, and while it is
    orphaned: then the pod counts neither as outdated nor as up to date."""
    orphan: bool = False
    """No DaemonSet owns it: a change of owner has left it behind."""
    ready: bool = True
    restarts: int = 0
    """The restart count of the container that is not ready; of several the highest."""
    leaving: bool = False
    digest: str = ""
    wanted_digest: str = ""
    version: str = ""
    """The driver's version, if its image's tag says it."""
    created: float = 0.0
    trouble: str = ""

    @property
    def outdated(self) -> bool:
        return not self.current or self.orphan

    @property
    def only_restarts(self) -> bool:
        """Whether its replacement would load the same driver, configured alike."""
        return bool(self.digest) and self.digest == self.wanted_digest and not self.orphan


class ValidatorPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of NVIDIA's validator."""

    name: str
    ready: bool = True
    trouble: str = ""


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """What our agent on the node reports."""

    alive: bool = True
    quiesced: bool = False
    """It has released the driver."""
    driver: str = ""
    """The version of the loaded driver."""
    checked_driver: str = ""
    passed: Mapping[str, float] = {}
    """Checks that passed, and since when."""
    failed: Mapping[str, str] = {}
    """Checks that failed, and why."""


class Refusal(msgspec.Struct, frozen=True):
    """An eviction that was refused, and when it may be tried again."""

    until: float
    why: str


class UpgradeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long upgrades wait."""

    lost_node_timeout: Annotated[
        timedelta,
        about("How long a node may be not ready before its upgrade fails: large machines boot for ten minutes."),
    ] = timedelta(minutes=15)
    driver_start_timeout: Annotated[
        timedelta, about("How long a new driver pod may take to become ready: drivers are compiled on the node.")
    ] = timedelta(minutes=30)
    driver_check_timeout: Annotated[timedelta, about("How long a new driver may take to pass its checks.")] = timedelta(
        minutes=10
    )
    driver_release_timeout: Annotated[
        timedelta, about("How long the agent may take to release the driver before it is replaced all the same.")
    ] = timedelta(minutes=1)
    missing_secret_interval: Annotated[
        timedelta, about("How often it is asked whether a Secret that a driver needs exists, while it does not.")
    ] = timedelta(seconds=30)
    policy_change_grace_period: Annotated[
        timedelta,
        about("How long a node that no policy selects keeps its upgrade: it may be moving from one policy to another."),
    ] = timedelta(seconds=10)


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    ready: bool = True
    drivers: tuple[DriverPod, ...] = ()
    validators: tuple[ValidatorPod, ...] = ()
    agent: AgentView | None = None
    pods: tuple[Pod, ...] = ()
    """The pods of the node, in the states that need them."""
    pool_resources: AbstractSet[str] = frozenset()
    """Extended resources by which pools hand out cards."""
    leaving: Mapping[str, float] = {}
    """By UID, the pods whose eviction this process requested and that are leaving, and since when."""
    refusals: Mapping[str, Refusal] = {}
    """By UID, the pods whose eviction was refused."""
    asked_since: float | None = None
    """When the API server first answered a request of this process for a pod in the present step; None if not yet."""
    slot_granted: bool = False
    """The node may start its upgrade."""
    limits: UpgradeLimits = UpgradeLimits()
    missing_secret: str = ""
    """`namespace/name` of a Secret without which a new driver pod would not start; only of nodes that are about to get
    one."""
    wanted: str = ""
    """Revision of the driver that it is to get; empty if that is not known, or not needed."""

    @property
    def state(self) -> UpgradeState:
        return UpgradeState(self.labels.get(NodeLabel.UPGRADE_STATE, ""))

    @property
    def managed(self) -> bool:
        """Whether there is a driver to upgrade; where the host brings the driver there is none."""
        return bool(self.drivers) or self.state is not UpgradeState.NONE

    @property
    def in_progress(self) -> bool:
        return self.state not in IDLE

    @property
    def occupies_slot(self) -> bool:
        """Whether it counts for `maxParallelUpgrades`; a node that only has to be uncordoned does not."""
        return self.in_progress and self.state is not UpgradeState.UNCORDON_REQUIRED

    @property
    def skipped(self) -> bool:
        return self.labels.get(NodeLabel.UPGRADE_SKIP) == TRUE

    @property
    def unavailable(self) -> bool:
        """Whether pods cannot be scheduled to it, or will not be able to in a moment."""
        return self.unschedulable or not self.ready or self.state is UpgradeState.CORDON_REQUIRED

    @property
    def requested(self) -> bool:
        return self.annotations.get(NodeAnnotation.UPGRADE_REQUESTED) == TRUE

    @property
    def safe_load(self) -> bool:
        """Whether a new driver waits for permission to load."""
        return NodeAnnotation.SAFE_LOAD in self.annotations

    @property
    def initially_unschedulable(self) -> bool:
        return NodeAnnotation.INITIALLY_UNSCHEDULABLE in self.annotations

    @property
    def wants_upgrade(self) -> bool:
        """Whether a node needs an upgrade although its label says that it is done: on request, because a new driver
        waits, or because a driver pod is outdated. A pod that a change of owner left behind is outdated."""
        return self.requested or self.safe_load or any(pod.outdated and not pod.leaving for pod in self.drivers)

    @property
    def without_successor(self) -> bool:
        """Whether a driver pod without an owner would be deleted and no other would come, since the new owner's driver
        cannot be rendered or does not cover the node."""
        return not self.wanted and any(pod.orphan for pod in self.drivers)

    @property
    def up_to_date(self) -> bool:
        """Whether all driver pods are known to be of the newest template, and ready."""
        return bool(self.drivers) and all(
            pod.ready and pod.revision_known and not pod.outdated and not pod.leaving for pod in self.drivers
        )

    def since(self, annotation: NodeAnnotation) -> float | None:
        """The time that an annotation holds; None if it holds none."""
        text = self.annotations.get(annotation, "")
        return float(text) if text.isdecimal() else None
