"""Everything one step decides on, gathered at one moment, so that all decisions see the same."""

from collections import defaultdict
from collections.abc import Mapping, Set

import msgspec

from gpu_control_plane.agent.mig.layout import Slot
from gpu_control_plane.agent.node.books import Books, slot_of
from gpu_control_plane.agent.node.inspection import Situation
from gpu_control_plane.agent.node.picture import Picture, Seen
from gpu_control_plane.agent.node.views import LocalNode, LocalPod, NodeState
from gpu_control_plane.agent.units import CardID, ResourceName, Unit
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Assignment
from gpu_control_plane.kube.cache import Cache


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows of the cluster: its own node, and what is on it."""

    nodes: Cache[LocalNode]
    states: Cache[NodeState]
    cards: Cache[Card]
    pods: Cache[LocalPod]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The node, its hardware, its orders and its pods."""

    node: LocalNode
    state: NodeState | None
    picture: Picture
    cards: dict[CardID, Seen]
    """Those of the picture that the cluster knows."""
    books: Books
    held: dict[Unit, str]
    """What must not be given to anybody else, and who has it."""
    allocatable: Mapping[ResourceName, Set[str]]
    """What the kubelet may hand out."""
    busy: bool
    """The books are about to change."""

    @property
    def orders(self) -> tuple[Assignment, ...]:
        return self.state.spec.assignments if self.state else ()

    @property
    def generation(self) -> int:
        """Which orders these are."""
        return self.state.metadata.generation if self.state else 0

    @property
    def users(self) -> dict[str, tuple[User, ...]]:
        """Who holds what, by the address of a card or the UUID of a MIG instance."""
        found: dict[str, list[User]] = defaultdict(list)
        for unit, user in self.books.holders.items():
            found[self._place(unit)].append(user)
        return {place: tuple(users) for place, users in found.items()}

    @property
    def taken(self) -> frozenset[str]:
        """What nobody may disturb, in the same words."""
        return frozenset(self._place(unit) for unit in self.held)

    @property
    def situation(self) -> Situation:
        """What a check of the node's software would be about."""
        ordered = frozenset(resource.name for order in self.orders for resource in order.resources)
        return Situation(
            driver=self.picture.known_facts.driver,
            cards=tuple((seen.id, seen.hardware.uuid) for seen in self.picture.seen.values()),
            ordered=ordered,
            listed={name: bool(self.allocatable.get(name)) for name in ordered},
        )

    def _place(self, unit: Unit) -> str:
        """The address of a whole card, or the UUID of the instance; nothing known by that name when it has gone."""
        seen, slot = self.picture.seen.get(unit.card), slot_of(unit)
        if seen is None or slot is None:
            return seen.address if seen else ""
        return next((instance.uuid for instance in seen.instances if Slot.of(instance) == slot), "")
