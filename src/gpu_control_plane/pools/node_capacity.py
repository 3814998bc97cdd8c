"""What one node contributes to a pool: its units, resource by resource, and what is wrong with them. Pure."""

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.allocation import Allocation, Mode, resource_suffix
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import (
    Assignment,
    GPUNodeState,
    OfferedResource,
    OrderProblem,
    PluginResource,
    ProblemReason,
)
from gpu_control_plane.api.gpupool import Capacity, GPUPool, WorstNode
from gpu_control_plane.api.names import DeviceCondition, NodeCondition, Reason
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.pools.units import card_resources

_MESSAGE: Final = 256
"""Characters of a message about a node that are kept."""


class Trouble(enum.StrEnum):
    """What is wrong with a node, as the reason of a `WorstNode`; the worst first."""

    MISCONFIGURED = "Misconfigured"
    FAILED = "Failed"
    FAULTED = "Faulted"
    WAITING = "Waiting"
    HELD = "HeldUnderAnotherName"
    NOT_OFFERED = "NotOffered"


_PROBLEMS: Final = {
    ProblemReason.MISCONFIGURED: Trouble.MISCONFIGURED,
    ProblemReason.FAILED: Trouble.FAILED,
    ProblemReason.WAITING: Trouble.WAITING,
}


class NodeProblem(msgspec.Struct, frozen=True, order=True):
    """An order that a node cannot carry out: a fault of the pool, not of a card."""

    rank: int
    """The lowest is told first."""
    node: str
    reason: Reason
    message: str


class NodeCapacity(msgspec.Struct, frozen=True):
    """What one node contributes to a pool."""

    resources: tuple[Capacity, ...]
    offered: int
    """Units that pods have or could have."""
    trouble: WorstNode | None = None
    problem: NodeProblem | None = None
    used: int = 0
    """Units that pods hold."""
    busy: bool = False
    """Whether a card of the pool is ordered, on offer or held by a pod."""
    ordered: Allocation | None = None
    """How all cards of the pool are ordered to be divided; None where some are not, or not alike."""
    complete: bool = False
    """Whether all that is ordered is offered, and nothing else is held or offered."""
    unfinished: bool = False
    """Whether a card that no pod holds is not offered as ordered."""
    absent: bool = False
    """The node is gone or not ready for pooling: nobody waits for it."""

    def offers(self, allocation: Allocation) -> bool:
        """Whether all its cards are divided like this, and offered."""
        return self.complete and self.ordered == allocation


def node_capacity(
    pool: GPUPool, node: str, cards: Iterable[GPUDevice], state: GPUNodeState | None
) -> NodeCapacity | None:
    """What a node contributes that has these cards of the pool; None for no cards.

    A unit counts once: as faulted, else used, else available. A unit that is none of these was ordered and is not
    offered yet. Reservations are of the pool: see `PoolCapacity.reserved`.
    """
    held = tuple(cards)
    if not held:
        return None
    count = _NodeCount(pool, state)
    for card in held:
        count.add(card)
    resources = count.resources()
    problems = count.problems(held)
    return NodeCapacity(
        resources=resources,
        offered=sum(each.used + each.available for each in resources),
        trouble=count.trouble(node, problems),
        problem=_node_problem(node, problems, count.orders),
        used=sum(user.units for card in held for user in card.status.used_by),
        busy=_is_busy(held, state, count.orders),
        ordered=_ordered_alike(held, count.orders),
        complete=count.is_complete(problems),
        unfinished=count.unfinished,
        absent=state is None or _is_absent(state),
    )


def _is_busy(cards: Iterable[GPUDevice], state: GPUNodeState | None, orders: Mapping[str, Assignment]) -> bool:
    """Whether one of the cards is ordered, on offer or held. What the agent says counts once it has read its orders."""
    names = {card.name for card in cards}
    if orders.keys() & names or any(card.status.used_by for card in cards):
        return True
    plugin = state.status.plugin if state is not None else None
    if state is None or plugin is None or is_true(state.status.conditions, NodeCondition.VANISHED):
        return False
    offered = any(names.intersection(resource.inventory_ids) for resource in plugin.resources)
    return offered or plugin.observed_generation < state.metadata.generation


def _ordered_alike(cards: Iterable[GPUDevice], orders: Mapping[str, Assignment]) -> Allocation | None:
    """How the cards are ordered to be divided, if all that stay in the pool are ordered alike."""
    staying = [card for card in cards if card.status.state is not DeviceState.DRAINING]
    found = {orders[card.name].allocation if card.name in orders else None for card in staying}
    return found.pop() if len(found) == 1 else None


def _is_absent(state: GPUNodeState) -> bool:
    conditions = state.status.conditions
    return is_true(conditions, NodeCondition.VANISHED) or not is_true(conditions, NodeCondition.READY_FOR_POOLING)


class _Tally(msgspec.Struct):
    """The units of one resource on a node."""

    total: int = 0
    used: int = 0
    faulted: int = 0
    free: int = 0
    """Not used, on cards that the node lists in the resource."""
    listed_used: int = 0
    """Used, on cards that the node lists in the resource."""


class _NodeCount:
    """Counts the cards of one pool on one node."""

    def __init__(self, pool: GPUPool, state: GPUNodeState | None) -> None:
        self._pool = pool
        plugin = state.status.plugin if state is not None else None
        self._problems = plugin.problems if plugin is not None else ()
        self._listed: Mapping[str, PluginResource] = {each.name: each for each in plugin.resources} if plugin else {}
        assignments = state.spec.assignments if state is not None else ()
        self.orders = {order.inventory_id: order for order in assignments if order.pool == pool.name}
        self._tallies: dict[str, _Tally] = defaultdict(_Tally)
        self._faulted: list[GPUDevice] = []
        self._unlisted: set[str] = set()
        self.unfinished = False
        """Whether a card that was ordered and that no pod holds is not listed."""
        self._withdrawn = 0
        """Unused units of cards that the pool has and that are not ordered: they are not missed."""
        self._held_elsewhere: dict[str, str] = {}
        """Cards that pods hold under a resource that the pool does not offer now, and that resource."""

    def add(self, card: GPUDevice) -> None:
        order = self.orders.get(card.name)
        resources = (
            order.resources if order else card_resources(self._pool, self._pool.allocation, card.status.hardware)
        )
        held = self._held(card, resources)
        for resource in resources:
            tally = self._tallies[resource.name]
            tally.total += resource.units
            if card.status.state is DeviceState.FAULTED:
                tally.faulted += resource.units
                continue
            used = min(held.get(resource.name, 0), resource.units)
            tally.used += used
            listed = self._listed.get(resource.name)
            if order is None:
                self._withdrawn += resource.units - used
            elif listed is not None and card.name in listed.inventory_ids:
                tally.free += resource.units - used
                tally.listed_used += used
            elif used < resource.units:
                self._unlisted.add(card.name)
                self.unfinished = self.unfinished or not card.status.used_by
        if card.status.state is DeviceState.FAULTED:
            self._faulted.append(card)

    def _held(self, card: GPUDevice, resources: tuple[OfferedResource, ...]) -> dict[str, int]:
        """The units that pods hold, by the resource that they count for. Pods that got theirs under a name which the
        pool has given up hold them all the same."""
        held: dict[str, int] = defaultdict(int)
        names = {resource.name for resource in resources}
        for user in card.status.used_by:
            if user.resource in names:
                held[user.resource] += user.units
                continue
            self._held_elsewhere[card.name] = user.resource
            alike = (each.name for each in resources if len(resources) == 1 or user.resource.endswith(_suffix(each)))
            if (name := next(alike, None)) is not None:
                held[name] += user.units
        return held

    def resources(self) -> tuple[Capacity, ...]:
        return tuple(self._capacity(name, tally) for name, tally in self._tallies.items())

    def _capacity(self, name: str, tally: _Tally) -> Capacity:
        """The node says how many units can be handed out: of a card that is only partly partitioned some are missing,
        and where another device plugin is in the way, all."""
        listed = self._listed.get(name)
        free = min(tally.free, max(0, (listed.healthy if listed else 0) - tally.listed_used))
        return Capacity(
            name=name, total=tally.total, used=tally.used, reserved=0, available=free, faulted=tally.faulted
        )

    def problems(self, cards: Iterable[GPUDevice]) -> tuple[OrderProblem, ...]:
        names = {card.name for card in cards}
        return tuple(problem for problem in self._problems if problem.inventory_id in names)

    def is_complete(self, problems: tuple[OrderProblem, ...]) -> bool:
        """Whether all that is ordered is offered, and nothing else."""
        return not problems and not self._held_elsewhere and not self._missing()

    def _missing(self) -> int:
        """Units that were ordered and are not offered."""
        counted = (each.used + each.available + each.faulted for each in self.resources())
        return sum(tally.total for tally in self._tallies.values()) - sum(counted) - self._withdrawn

    def trouble(self, node: str, problems: tuple[OrderProblem, ...]) -> WorstNode | None:
        """What is wrong with the node, the worst first."""
        missing = self._missing()
        found: list[tuple[Trouble, set[str], str]] = [
            (_PROBLEMS.get(problem.reason, Trouble.FAILED), {problem.inventory_id}, problem.message)
            for problem in problems
        ]
        if self._faulted:
            found.append(
                (Trouble.FAULTED, {card.name for card in self._faulted}, "; ".join(map(_fault, self._faulted)))
            )
        if self._held_elsewhere:
            count, name = len(self._held_elsewhere), min(self._held_elsewhere.values())
            words = f"{count} held by pods as {name}: offered anew when they have ended"
            found.append((Trouble.HELD, set(self._held_elsewhere), words))
        explained = {card for _, cards, _ in found for card in cards}
        if missing and not (self._unlisted and self._unlisted <= explained):
            words = f"{missing} ordered but not offered yet: is the agent on the node running?"
            found.append((Trouble.NOT_OFFERED, self._unlisted - explained, words))
        if not found:
            return None
        found.sort(key=lambda each: list(Trouble).index(each[0]))
        cards = set[str]().union(*(cards for _, cards, _ in found))
        message = "; ".join(dict.fromkeys(words for _, _, words in found))
        return WorstNode(name=node, cards=max(1, len(cards)), reason=found[0][0].value, message=message[:_MESSAGE])


def _suffix(resource: OfferedResource) -> str:
    """What the name of a resource of this profile ends with, where each profile has a resource."""
    return f".{resource_suffix(resource.profile)}" if resource.profile else ""


def _node_problem(
    node: str, problems: tuple[OrderProblem, ...], orders: Mapping[str, Assignment]
) -> NodeProblem | None:
    found: list[NodeProblem] = []
    for problem in problems:
        order = orders.get(problem.inventory_id)
        if problem.reason is ProblemReason.MISCONFIGURED:
            partitioned = order is not None and order.allocation.mode is Mode.MIG
            rank, reason = (0, Reason.LAYOUT_MISMATCH) if partitioned else (1, Reason.ORDER_REFUSED)
        elif problem.reason is ProblemReason.FAILED:
            rank, reason = 2, Reason.ORDER_FAILED
        else:
            continue  # It waits for a pod: nothing is wrong.
        message = f"node {node}, card {problem.inventory_id}: {problem.message}"
        found.append(NodeProblem(rank, node, reason, message[: 2 * _MESSAGE]))
    return min(found, default=None)


def _fault(card: GPUDevice) -> str:
    health = find(card.status.conditions, DeviceCondition.HEALTHY)
    return f"{card.spec.pci_address}: {health.reason if health else 'Faulted'}"
