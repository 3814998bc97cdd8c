"""Who is in charge of the stack and what is asked of it: one answer for labelling, states, drivers and upgrades.

Answers come from caches and are right on every replica at any moment.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Cache, Runtime
from gpu_control_plane.kube.changes import spec_changed
from gpu_control_plane.operator.cluster_policy import InForce, in_force
from gpu_control_plane.operator.labelling.decide import OwnerWish, Wish, gets_driver, managed, wish_of
from gpu_control_plane.operator.node_facts import gpu_present
from gpu_control_plane.operator.nvidia_lease import RivalWatch
from gpu_control_plane.operator.upgrade.groups import THE_POLICYS, Campaign

_WITH_CARD = "operator/gpu"
_LABELLED = "operator/labelled"


class Drivers(Protocol):
    """What NVIDIADrivers say."""

    def owner(self, node: Node) -> OwnerWish | None:
        """The NVIDIADriver that a node should belong to; None while nobody can say."""

    def campaigns(self) -> Sequence[Campaign]:
        """The upgrade policy of each, and its nodes."""

    def leaving(self) -> bool:
        """Whether drivers of theirs still run although nobody asks for them any more."""


class Charge:
    """The ClusterPolicy in force, the rival, and the nodes with cards."""

    def __init__(self, runtime: Runtime, rival: RivalWatch, known: asyncio.Event | None = None) -> None:
        """`known` is set once it is certain what kind of cluster this is."""
        self.rival = rival
        self.policies: Cache[StoredClusterPolicy] = runtime.cache(StoredClusterPolicy)
        self.nodes: Cache[Node] = runtime.cache(Node)
        self.drivers: Drivers | None = None
        self.nodes.index(_WITH_CARD, lambda node: (_WITH_CARD,) if gpu_present(node.metadata.labels) else ())
        self.nodes.index(_LABELLED, lambda node: (_LABELLED,) if managed(node) else ())
        self._known = known
        self._last: tuple[str, Wish] | None = None

    def in_force(self) -> InForce | None:
        return in_force(self.policies)

    def on_policy(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever a policy has come, gone, or asks for something else."""

        def changed(old: StoredClusterPolicy | None, new: StoredClusterPolicy | None) -> None:
            if spec_changed(old, new):
                tell()

        self.policies.on_change(changed)

    def gpu_nodes(self) -> list[Node]:
        return self.nodes.by_index(_WITH_CARD, _WITH_CARD)

    def gpu_node_count(self) -> int:
        return self.nodes.count(_WITH_CARD, _WITH_CARD)

    def may_write(self) -> bool:
        """False while NVIDIA's operator is in charge, or while it is not certain what kind of cluster this is: drivers
        for another kind would take the place of those that run."""
        return (self._known is None or self._known.is_set()) and self.rival.active() is None

    def wish(self) -> Wish | None:
        """What the policy in force asks of labels; None without one that can be carried out."""
        wish = self._asked()
        if wish is not None and not wish.driver_crd and self._leaving():
            # Their pods follow the label of the owner: it stays until the pods are nobody's.
            return msgspec.structs.replace(wish, driver_crd=True)
        return wish

    def owner(self, node: Node) -> OwnerWish | None:
        """The NVIDIADriver that a node should belong to; None while nobody can say, or while they leave."""
        return self.drivers.owner(node) if self.drivers is not None and not self._leaving() else None

    def retired(self) -> bool:
        """Whether no policy is left, but nodes still carry what one of ours brought: only we set that label."""
        return self.in_force() is None and self.nodes.count(_LABELLED, _LABELLED) > 0

    def all(self) -> Sequence[Campaign] | None:
        """Every upgrade policy with the nodes that get their driver by it; None while nobody can say, since off would
        mean to let nodes go."""
        found, wish = self.in_force(), self._asked()
        if found is None:
            return ()
        if found.spec is None or wish is None or self.drivers is None:
            return None
        if wish.driver_crd:
            campaigns = self.drivers.campaigns()
        else:
            policy = None if wish.sandbox else found.spec.driver.upgrade_policy
            campaigns = (Campaign(THE_POLICYS, policy, frozenset(node.name for node in self.gpu_nodes())),)
        return tuple(self._without_others(campaign, wish) for campaign in campaigns)

    def _asked(self) -> Wish | None:
        """The wish as the policy has it, worked out once for each generation of it."""
        found = self.in_force()
        if found is None or found.spec is None:
            return None
        version = f"{found.policy.metadata.uid}/{found.policy.metadata.generation}"
        if self._last is None or self._last[0] != version:
            self._last = version, wish_of(found.spec)
        return self._last[1]

    def _leaving(self) -> bool:
        return self.drivers is not None and self.drivers.leaving()

    def _without_others(self, campaign: Campaign, wish: Wish) -> Campaign:
        """The campaign without nodes that get no driver from us. Nothing would ever be done to them, but they would
        count: 25 % of all would be too many of the rest, and a canary among them would be waited for in vain."""
        held = ((name, self.nodes.get(name)) for name in campaign.nodes)
        ours = (name for name, node in held if node is not None and gets_driver(node.metadata.labels, wish))
        return msgspec.structs.replace(campaign, nodes=frozenset(ours))
