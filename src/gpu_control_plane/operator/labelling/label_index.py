"""Which nodes do not have their labels yet, and which hosts bring a driver that will not do.

Kept at every change of a cache, on every replica, by deciding about the one node concerned: whoever asks gets an
answer at once, and it is never behind the caches.
"""

from collections.abc import Callable
from typing import Protocol

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.kube import Cache
from gpu_control_plane.operator.labelling.agent_report import report_of
from gpu_control_plane.operator.labelling.decide import (
    NOTHING,
    Change,
    OwnerWish,
    Subject,
    Wish,
    cleanup,
    decide,
    wants_no_operands,
)
from gpu_control_plane.operator.node_facts import has_card

_UPGRADES = NodeAnnotation.UPGRADE_ENABLED.value


class Policies(Protocol):
    """Who knows what is in force. Asked at every change of a node, so the answers lie ready."""

    def wish(self) -> Wish | None:
        """What the ClusterPolicy in force asks; None without one."""

    def owner(self, node: Node) -> OwnerWish | None:
        """Which NVIDIADriver should own a node with a card, None while nobody can say; asked only where
        `Wish.driver_crd` holds."""

    def may_write(self) -> bool:
        """False while another operator is in charge."""

    def retired(self) -> bool:
        """Whether the last ClusterPolicy was deleted after it had been in force here.

        Without a ClusterPolicy nothing is touched unless this holds: labels of a cluster in which NVIDIA's operator
        has always been in charge look just the same. After a restart a label that only we write is the memory of it.
        """


class LabelBook:
    """The state of all nodes' labels. `outstanding` and `problems` are for reading."""

    def __init__(
        self,
        nodes: Cache[Node],
        states: Cache[GPUNodeState],
        policies: Policies,
        driver_pod: Callable[[str], bool],
    ) -> None:
        self.outstanding: set[str] = set()
        self.problems: dict[str, str] = {}
        self._nodes = nodes
        self._states = states
        self._policies = policies
        self._driver_pod = driver_pod
        self._on_settled: list[Callable[[bool], None]] = []
        self._on_problems: list[Callable[[], None]] = []
        nodes.on_change(self._node_changed)
        states.on_change(self._state_changed)

    @property
    def settled(self) -> bool:
        """Whether every node has the labels it should have."""
        return not self.outstanding

    def on_settled(self, tell: Callable[[bool], None]) -> None:
        """Call `tell(settled)` whenever the last node has got its labels, and when one lacks some again."""
        self._on_settled.append(tell)

    def on_problems(self, tell: Callable[[], None]) -> None:
        """Call `tell()` whenever `problems` has changed."""
        self._on_problems.append(tell)

    def change(self, node: Node) -> Change:
        """What is to be written to a node at this moment."""
        wish = self._policies.wish()
        if wish is None:
            return cleanup(node) if self._policies.retired() else NOTHING
        return self._decided(node, wish)

    def recount(self) -> None:
        """Decide about all nodes anew: something that concerns them all has changed."""
        before, wish = self.settled, self._policies.wish()
        self.outstanding.clear()
        if wish is not None:
            self.outstanding.update(node.name for node in self._nodes if self._decided(node, wish))
        elif self._policies.retired():
            self.outstanding.update(node.name for node in self._nodes if cleanup(node))
        self._tell_settled(before)

    def look_at(self, name: str) -> None:
        """Decide about one node anew."""
        before = self.settled
        node = self._nodes.get(name)
        if node is not None and self.change(node):
            self.outstanding.add(name)
        else:
            self.outstanding.discard(name)
        self._tell_settled(before)

    def _decided(self, node: Node, wish: Wish) -> Change:
        if not has_card(node.metadata.labels):
            return decide(Subject(node), wish)
        return decide(
            Subject(
                node=node,
                report=report_of(self._states.get(node.name)),
                driver_pod=self._driver_pod(node.name),
                owner=self._policies.owner(node) if wish.driver_crd else None,
            ),
            wish,
        )

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _same(old, new):
            return
        held = new if new is not None else old
        if held is not None:
            self.look_at(held.name)
            self._note_problem(held.name)

    def _state_changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        held = new if new is not None else old
        if held is not None and report_of(old) != report_of(new):
            self.look_at(held.name)
            self._note_problem(held.name)

    def _note_problem(self, name: str) -> None:
        node = self._nodes.get(name)
        problem = ""
        if node is not None and has_card(node.metadata.labels) and not wants_no_operands(node.metadata.labels):
            driver = report_of(self._states.get(name)).host_driver
            problem = driver.problem if driver is not None else ""
        if problem == self.problems.get(name, ""):
            return
        if problem:
            self.problems[name] = problem
        else:
            del self.problems[name]
        for tell in self._on_problems:
            tell()

    def _tell_settled(self, before: bool) -> None:
        if before != self.settled:
            for tell in self._on_settled:
                tell(self.settled)


def _same(old: Node, new: Node) -> bool:
    """Whether nothing has changed that a decision looks at: a Node's status changes all day."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.status.node_info.container_runtime_version == new.status.node_info.container_runtime_version
        and old.metadata.annotations.get(_UPGRADES) == new.metadata.annotations.get(_UPGRADES)
    )
