"""Which nodes do not have their labels yet, and on which nodes the host's own driver cannot be used.

Kept current on every replica: each change of a cache decides anew about the one node it concerns. A reader gets the
answer at once, and the answer is never behind the caches.
"""

from typing import Protocol

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.kube import Cache, Signal
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.operator.labelling.agent_report import agent_report
from gpu_control_plane.operator.labelling.decide import (
    NO_CHANGE,
    DriverOwner,
    LabelPatch,
    LabelSpec,
    NodeInput,
    decide,
    operands_disabled,
    removal_patch,
)
from gpu_control_plane.operator.node_facts import has_card

_UPGRADES = NodeAnnotation.UPGRADE_ENABLED.value


class LabelPolicy(Protocol):
    """What the active ClusterPolicy asks of labels. Asked at every change of a node, so every answer has to be
    cheap."""

    changed: Signal
    """Fired when an answer may have changed for many nodes."""

    def label_spec(self) -> LabelSpec | None:
        """What the active ClusterPolicy asks of labels; None without one."""

    def driver_owner(self, node: Node) -> DriverOwner | None:
        """Which NVIDIADriver should own a node with a card; None while that is not certain. Asked only where
        `LabelSpec.driver_crd` holds."""

    def may_write(self) -> bool:
        """False while NVIDIA's operator is active."""

    def removed(self) -> bool:
        """Whether the last ClusterPolicy was deleted after it had been carried out here.

        Without a ClusterPolicy no label is changed unless this holds: in a cluster that NVIDIA's operator has always
        managed, the labels look the same. A label that only this operator writes tells the two apart, also after a
        restart.
        """


class DriverPodNodes(Protocol):
    """On which nodes there are driver pods of the stack."""

    changed: Signal
    """Fired with the key of a node when that may have changed there."""

    def on(self, node: str) -> bool:
        """Whether there is one on the node."""


class LabelIndex:
    """The state of all nodes' labels. `pending` and `host_problems` are for reading; `changed` is fired when the last
    node has got its labels, when one lacks some again, and when `host_problems` has changed."""

    def __init__(
        self, nodes: Cache[Node], states: Cache[GPUNodeState], policy: LabelPolicy, driver_pods: DriverPodNodes
    ) -> None:
        self.changed = Signal("labels")
        self.pending: set[str] = set()
        """Nodes whose labels are to be written."""
        self.host_problems: dict[str, str] = {}
        """By node, why the host's own driver cannot be used."""
        self._nodes = nodes
        self._states = states
        self._policy = policy
        self._driver_pods = driver_pods
        nodes.on_change(self._node_changed)
        states.on_change(self._state_changed)
        policy.changed.on_change(lambda _old, _new: self._recount())
        driver_pods.changed.on_change(self._driver_pod_changed)

    @property
    def settled(self) -> bool:
        """Whether every node has the labels it should have."""
        return not self.pending

    def patch_for(self, node: Node) -> LabelPatch:
        """What is to be written to a node at this moment."""
        spec = self._policy.label_spec()
        if spec is None:
            return removal_patch(node) if self._policy.removed() else NO_CHANGE
        return self._decide(node, spec)

    def _recount(self) -> None:
        """Decide about all nodes anew."""
        before, spec = self.settled, self._policy.label_spec()
        self.pending.clear()
        if spec is not None:
            self.pending.update(node.name for node in self._nodes if self._decide(node, spec))
        elif self._policy.removed():
            self.pending.update(node.name for node in self._nodes if removal_patch(node))
        self._fire_if_settled_changed(before)

    def _update(self, name: str) -> None:
        """Decide about one node anew."""
        before = self.settled
        node = self._nodes.get(name)
        if node is not None and self.patch_for(node):
            self.pending.add(name)
        else:
            self.pending.discard(name)
        self._fire_if_settled_changed(before)

    def _decide(self, node: Node, spec: LabelSpec) -> LabelPatch:
        if not has_card(node.metadata.labels):
            return decide(NodeInput(node), spec)
        return decide(
            NodeInput(
                node=node,
                report=agent_report(self._states.get(node.name)),
                driver_pod=self._driver_pods.on(node.name),
                owner=self._policy.driver_owner(node) if spec.driver_crd else None,
            ),
            spec,
        )

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _same(old, new):
            return
        held = new if new is not None else old
        if held is not None:
            self._update(held.name)
            self._update_host_problem(held.name)

    def _driver_pod_changed(self, _old: Fired | None, new: Fired | None) -> None:
        if new is not None:
            self._update(new.key.name)

    def _state_changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        held = new if new is not None else old
        if held is not None and agent_report(old) != agent_report(new):
            self._update(held.name)
            self._update_host_problem(held.name)

    def _update_host_problem(self, name: str) -> None:
        node = self._nodes.get(name)
        problem = ""
        if node is not None and has_card(node.metadata.labels) and not operands_disabled(node.metadata.labels):
            driver = agent_report(self._states.get(name)).host_driver
            problem = driver.problem if driver is not None else ""
        if problem == self.host_problems.get(name, ""):
            return
        if problem:
            self.host_problems[name] = problem
        else:
            del self.host_problems[name]
        self.changed.fire()

    def _fire_if_settled_changed(self, before: bool) -> None:
        if before != self.settled:
            self.changed.fire()


def _same(old: Node, new: Node) -> bool:
    """Whether nothing has changed that a decision depends on: the kubelet writes a Node's status all day."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.status.node_info.container_runtime_version == new.status.node_info.container_runtime_version
        and old.metadata.annotations.get(_UPGRADES) == new.metadata.annotations.get(_UPGRADES)
    )
