"""Which upgrade policy applies to which nodes. ClusterPolicies and NVIDIADrivers are read elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube import Cache, Key, Signal
from gpu_control_plane.operator.node_facts import DEPLOY_DRIVER

CLUSTER_POLICY: Final = ""
"""Name of the ClusterPolicy's group; the others have the names of NVIDIADrivers."""

_SETTLE_SECONDS: Final = 0.5
"""Between two looks at the labels of nodes: many nodes that change at once cost one."""
_GROUP_LABELS: Final = (
    NodeLabel.PRESENT,
    NodeLabel.OPERANDS,
    NodeLabel.WORKLOAD,
    DEPLOY_DRIVER,
    NodeLabel.DRIVER_OWNER,
)
"""Labels that say whether a node gets its driver from the ClusterPolicy, from an NVIDIADriver, or not from us."""


class UpgradeGroup(msgspec.Struct, frozen=True):
    """The nodes to which one upgrade policy applies."""

    name: str
    """`CLUSTER_POLICY`, or the NVIDIADriver's name."""
    policy: UpgradePolicy | None
    """None, or one without `autoUpgrade`: upgrades are off."""
    nodes: frozenset[str]
    unreadable: bool = False
    """The policy cannot be read. Its nodes stay as they are: if it counted as off, their upgrades would be undone."""

    @property
    def active_policy(self) -> UpgradePolicy | None:
        return self.policy if self.policy is not None and self.policy.auto_upgrade else None


class UpgradePolicies(Protocol):
    """What ClusterPolicy and NVIDIADrivers ask of upgrades."""

    changed: Signal
    """Fired when an answer may have changed, except by the labels of single nodes."""

    def upgrade_groups(self) -> Sequence[UpgradeGroup] | None:
        """Every group; upgrades are off on a node in none of them. None while the groups are not known."""

    def may_write(self) -> bool:
        """False while NVIDIA's operator is active."""


class GroupIndex:
    """The groups as they were last read, and the group of each node.

    They are read first by a reconcile, when all caches are complete: before that, nodes would seem to be in no group.
    `changed` is fired whenever they were read anew, `regrouped` with the keys of nodes whose policy has changed.
    """

    def __init__(self, policies: UpgradePolicies, nodes: Cache[Node]) -> None:
        self.changed = Signal("upgrade-groups")
        self.regrouped = Signal("upgrade-regrouped")
        self.may_write = False
        self.known = False
        """Whether the groups are known; if not, no node starts an upgrade and none is switched off."""
        self._policies = policies
        self._nodes = nodes
        self._groups: tuple[UpgradeGroup, ...] | None = None
        self._by_node: dict[str, UpgradeGroup] = {}
        relabelled = Signal("upgrade-relabelled", interval=_SETTLE_SECONDS)
        relabelled.watch(nodes, when=lambda old, new: _group_labels(old) != _group_labels(new))
        for signal in (policies.changed, relabelled):
            signal.on_change(lambda _old, _new: self._refresh())

    def read(self) -> tuple[UpgradeGroup, ...]:
        """All groups."""
        return self._groups if self._groups is not None else self._read()

    def group_of(self, node: str) -> UpgradeGroup | None:
        self.read()
        return self._by_node.get(node)

    def forget(self) -> None:
        """Read the groups anew the next time."""
        self._groups, self._by_node = None, {}

    def _read(self) -> tuple[UpgradeGroup, ...]:
        found = self._policies.upgrade_groups()
        self.known = found is not None
        self.may_write = self._policies.may_write() and self.known
        self._groups = tuple(found or ())
        self._by_node = {node: group for group in self._groups for node in group.nodes}
        return self._groups

    def _refresh(self) -> None:
        if self._groups is None:
            return
        before, wrote = self._by_node, self.may_write
        self._read()
        names = regrouped_nodes(before, self._by_node)
        if wrote != self.may_write:
            names = {node.name for node in self._nodes}
        if names:
            self.regrouped.fire(*map(Key, names))
        self.changed.fire()


def regrouped_nodes(before: Mapping[str, UpgradeGroup], after: Mapping[str, UpgradeGroup]) -> set[str]:
    """The nodes to which another policy applies now, or none. If a group only gains or loses nodes, nothing changes for
    the others."""
    old, new = ({held.name: held for held in groups.values()} for groups in (before, after))
    changed = {name for name, held in new.items() if name not in old or _terms(old[name]) != _terms(held)}
    return {
        node
        for node in before.keys() | after.keys()
        if (held := after.get(node)) is None
        or (was := before.get(node)) is None
        or was.name != held.name
        or held.name in changed
    }


def _terms(group: UpgradeGroup) -> tuple[UpgradePolicy | None, bool]:
    return group.policy, group.unreadable


def _group_labels(node: Node | None) -> tuple[str | None, ...] | None:
    return tuple(node.metadata.labels.get(label) for label in _GROUP_LABELS) if node is not None else None
