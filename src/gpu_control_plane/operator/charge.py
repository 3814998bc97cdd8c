"""Who is in charge of the stack and what is asked of it: one answer for labelling, states, drivers and upgrades.

Answers come from caches and are right on every replica at any moment.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Cache, Runtime
from gpu_control_plane.operator.facts import gpu_present
from gpu_control_plane.operator.labelling.decide import OwnerWish, Wish, managed, wish_of
from gpu_control_plane.operator.rival import RivalWatch
from gpu_control_plane.operator.stack.policies import InForce, in_force
from gpu_control_plane.operator.upgrade.campaigns import THE_POLICYS, Campaign

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

    def __init__(self, runtime: Runtime, rival: RivalWatch) -> None:
        self.rival = rival
        self.policies: Cache[StoredClusterPolicy] = runtime.cache(StoredClusterPolicy)
        self.nodes: Cache[Node] = runtime.cache(Node)
        self.drivers: Drivers | None = None
        self.nodes.index(_WITH_CARD, lambda node: (_WITH_CARD,) if gpu_present(node.metadata.labels) else ())
        self.nodes.index(_LABELLED, lambda node: (_LABELLED,) if managed(node) else ())
        self._last: tuple[str, Wish | None] = ("", None)

    def in_force(self) -> InForce | None:
        return in_force(self.policies)

    def gpu_nodes(self) -> list[Node]:
        return self.nodes.under(_WITH_CARD, _WITH_CARD)

    def gpu_node_count(self) -> int:
        return self.nodes.count(_WITH_CARD, _WITH_CARD)

    def may_write(self) -> bool:
        """False while NVIDIA's operator is in charge."""
        return self.rival.active() is None

    def wish(self) -> Wish | None:
        """What the policy in force asks of labels; None without one that can be carried out."""
        found = self.in_force()
        if found is None or found.spec is None:
            return None
        version = f"{found.policy.metadata.uid}/{found.policy.metadata.generation}"
        if self._last[0] != version:
            self._last = (version, wish_of(found.spec))
        wish = self._last[1]
        if wish is not None and not wish.driver_crd and self._leaving():
            # Their pods follow the label of the owner: it stays until the pods are nobody's.
            return msgspec.structs.replace(wish, driver_crd=True)
        return wish

    def owner(self, node: Node) -> OwnerWish | None:
        """The NVIDIADriver that a node should belong to; None while nobody can say, or while they leave."""
        return self.drivers.owner(node) if self.drivers is not None and not self._leaving() else None

    def _leaving(self) -> bool:
        return self.drivers is not None and self.drivers.leaving()

    def retired(self) -> bool:
        """Whether no policy is left, but nodes still carry what one of ours brought: only we set that label."""
        return self.in_force() is None and self.nodes.count(_LABELLED, _LABELLED) > 0

    def all(self) -> Sequence[Campaign] | None:
        """Every upgrade policy with its nodes; None while nobody can say, since off would mean to let nodes go."""
        found = self.in_force()
        if found is None:
            return ()
        if found.spec is None or self.drivers is None:
            return None
        if on(found.spec.driver.use_nvidia_driver_crd, absent=False):
            return self.drivers.campaigns()
        sandbox = on(found.spec.sandbox_workloads.enabled, absent=False)
        policy = None if sandbox else found.spec.driver.upgrade_policy
        return (Campaign(THE_POLICYS, policy, frozenset(node.name for node in self.gpu_nodes())),)


def calls(*tells: Callable[[], None]) -> Callable[..., None]:
    """One callback for several, whatever it is called with."""

    def tell(*_news: object) -> None:
        for each in tells:
            each()

    return tell
