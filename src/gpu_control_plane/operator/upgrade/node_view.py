"""One node as its upgrade sees it: everything that a step is decided on, taken at one moment."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import TRUE, NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.views import Pod

IDLE: Final = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.REQUIRED, UpgradeState.FAILED})
"""States in which nothing is done to a node. A failed one waits for a person, not for us."""

NEEDS_PODS: Final = frozenset(
    {UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_DELETION_REQUIRED, UpgradeState.DRAIN_REQUIRED}
)
"""States in which the pods of the node matter."""


class DriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that brings the driver to the node."""

    name: str
    uid: str = ""
    daemonset: str = ""
    current: bool = True
    """Made from its DaemonSet's newest template."""
    orphan: bool = False
    """No DaemonSet owns it: it was left over by a change of owner."""
    ready: bool = True
    restarts: int = 0
    """Of the container that is not ready; the most of any."""
    leaving: bool = False
    digest: str = ""
    wanted_digest: str = ""
    version: str = ""
    """The driver's version, if its image tells."""
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


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What our agent on the node says."""

    alive: bool = True
    quiesced: bool = False
    """It has let go of the driver."""
    driver: str = ""
    """The driver it sees."""
    checked_driver: str = ""
    passed: Mapping[str, float] = {}
    """Checks that passed, and since when."""
    failed: Mapping[str, str] = {}
    """Checks that failed, and why."""


class Refusal(msgspec.Struct, frozen=True):
    """A pod that could not be made to leave, and when it may be tried again."""

    until: float
    why: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    ready: bool = True
    drivers: tuple[DriverPod, ...] = ()
    validators: tuple[ValidatorPod, ...] = ()
    agent: Agent | None = None
    pods: tuple[Pod, ...] = ()
    """The pods of the node, in the states that need them."""
    pool_resources: AbstractSet[str] = frozenset()
    """Resources by which pools hand out cards."""
    leaving: Mapping[str, float] = {}
    """Pods, by uid, that have been asked to leave and go, and when this process asked them."""
    refusals: Mapping[str, Refusal] = {}
    """Pods, by uid, that refused to leave."""
    asked_since: float | None = None
    """When this process was first answered by a pod that it asked to leave in the present step; None if by none yet."""
    granted: bool = False
    """It is the node's turn."""
    wanted: str = ""
    """Revision of the driver that it is to get; empty if nobody can say, or nobody asks."""

    @property
    def state(self) -> UpgradeState:
        return UpgradeState(self.labels.get(NodeLabel.UPGRADE_STATE, ""))

    @property
    def managed(self) -> bool:
        """Whether there is a driver to upgrade; a node whose host brings the driver has none."""
        return bool(self.drivers) or self.state is not UpgradeState.NONE

    @property
    def in_progress(self) -> bool:
        return self.state not in IDLE

    @property
    def holds_turn(self) -> bool:
        """Whether others have to wait for it; a node that only has to be uncordoned is through."""
        return self.in_progress and self.state is not UpgradeState.UNCORDON_REQUIRED

    @property
    def skipped(self) -> bool:
        return self.labels.get(NodeLabel.UPGRADE_SKIP) == TRUE

    @property
    def unavailable(self) -> bool:
        """Whether pods cannot come to it, or will not be able to in a moment."""
        return self.unschedulable or not self.ready or self.state is UpgradeState.CORDON_REQUIRED

    @property
    def requested(self) -> bool:
        return self.annotations.get(NodeAnnotation.UPGRADE_REQUESTED) == TRUE

    @property
    def safe_load(self) -> bool:
        """Whether a new driver waits for a word that it may load."""
        return NodeAnnotation.SAFE_LOAD in self.annotations

    @property
    def initially_unschedulable(self) -> bool:
        return NodeAnnotation.INITIALLY_UNSCHEDULABLE in self.annotations

    @property
    def wants_upgrade(self) -> bool:
        """Whether anything asks for an upgrade of a node that has the right driver, as far as its label says.

        A pod that a change of owner left behind is one such thing: whoever governs the node brings another.
        """
        return self.requested or self.safe_load or any(pod.outdated and not pod.leaving for pod in self.drivers)

    @property
    def without_successor(self) -> bool:
        """Whether a driver that is nobody's would be taken away, and no other would come: its owner cannot be rendered,
        or leaves the node out."""
        return not self.wanted and any(pod.orphan for pod in self.drivers)

    @property
    def settled(self) -> bool:
        """Whether the driver is as it should be, and works."""
        return bool(self.drivers) and all(pod.ready and not pod.outdated and not pod.leaving for pod in self.drivers)

    def since(self, annotation: NodeAnnotation) -> float | None:
        """A moment that an annotation holds; None if it holds none, or nonsense."""
        text = self.annotations.get(annotation, "")
        return float(text) if text.isdecimal() else None
