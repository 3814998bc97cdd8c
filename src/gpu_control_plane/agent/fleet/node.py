"""The agent and the kubelet of one simulated node at work: a snapshot in, decisions, the differences written.

Everything is derived from objects in the API server. What is remembered between two calls, the looks at unused
cards, only ever delays a release; forgetting it is safe.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from gpu_control_plane.agent import orders as protocol
from gpu_control_plane.agent.fleet.admission import Admission, admit
from gpu_control_plane.agent.fleet.advertise import resource_changes, served
from gpu_control_plane.agent.fleet.placement import Shortage
from gpu_control_plane.agent.fleet.pods import PodAnswer, allocated, grants, needs, refused
from gpu_control_plane.agent.fleet.snapshot import Snapshot, snapshot
from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.agent.orders import Look
from gpu_control_plane.agent.reports import CardReports
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import HARDWARE, Machine, boot_id, reset, write_machine
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.views import (
    MANAGER,
    Card,
    Node,
    Orders,
    OrdersAnswer,
    OrdersShare,
    Pod,
)
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Assignment, Plugin
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import FieldManager


class Views(msgspec.Struct, frozen=True):
    """What the fleet knows of the cluster."""

    nodes: Cache[Node]
    orders: Cache[Orders]
    cards: Cache[Card]
    pods: Cache[Pod]


class Memory(msgspec.Struct):
    """What is remembered about a node between two calls."""

    offers: dict[Unit, Look] = {}
    resources: set[str] = set()


def whole_cards(assignments: Iterable[Assignment], cards: Collection[str]) -> set[Unit]:
    """The orders that a simulated node can carry out: whole cards that it has."""
    return {
        Unit(order.resources[0].name, order.inventory_id, order.inventory_id)
        for order in assignments
        if order.inventory_id in cards and order.allocation.mode == Mode.EXCLUSIVE and len(order.resources) == 1
    }


class NodeAgent:
    """Brings one simulated node after the other up to date."""

    def __init__(
        self,
        views: Views,
        client: Client,
        metrics: AgentMetrics,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._views = views
        self._client = client
        self._applier = Applier(client, MANAGER)
        self._reports = CardReports(self._applier, metrics, now)
        self._metrics = metrics
        self._now = now
        self._monotonic = monotonic
        self._memories: dict[str, Memory] = {}

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._memories.pop(node, None)

    async def admit_freely(self, node: str) -> None:
        """On a simulated node without cards nothing has to be chosen: pods that wait for a choice may start."""
        for pod in self._views.pods.by_index("node", node):
            if needs(pod) and grants(pod) is None and not pod.deleting:
                await self._answer_pod(pod, allocated(pod, (), self._now()))

    async def serve(self, node: Node, machine: Machine) -> float | None:
        """Do what is to be done on a node; returns the seconds until it is due again without any change."""
        cards = self._views.cards.by_index("node", node.name)
        if await self._clear_faults(node, machine, cards):
            return None
        seen = snapshot(
            node, machine, self._views.orders.get(node.name), cards, self._views.pods.by_index("node", node.name)
        )
        available, look_again = await self._carry_out_orders(seen)
        served_here = self._memories[node.name].resources
        decided = admit(seen.pods, available, seen.spots.values(), served=served_here, status=seen.node.status)
        await self._report_cards(seen, decided.users)
        await self._answer_pods(decided)
        return look_again

    async def _carry_out_orders(self, seen: Snapshot) -> tuple[dict[str, str], float | None]:
        """One step of the orders, on the Node and in the answer; returns what is on offer afterwards."""
        memory = self._memories.setdefault(seen.node.name, Memory())
        plugin = seen.orders.status.plugin if seen.orders else None
        generation = seen.orders.metadata.generation if seen.orders else 0
        wanted = whole_cards(seen.orders.spec.assignments if seen.orders else (), seen.addresses)
        memory.resources |= served(plugin)

        offers = protocol.recovered(plugin, memory.offers)
        present = protocol.answer(offers, protocol.on_offer(wanted, offers, seen.spots), generation)
        told = not resource_changes(seen.node.status, present, memory.resources)
        lent = set() if told else offers.keys()
        step = protocol.step(wanted, offers, seen.held, lent=lent, now=self._monotonic())
        available = protocol.on_offer(wanted, step.offers, seen.spots)
        announced = protocol.answer(step.offers, available, generation)
        memory.offers = step.offers
        memory.resources |= served(announced)

        if step.leaving:
            # The kubelet first: as soon as the answer no longer lists a card, others may give it away.
            await self._write_node(seen, announced, memory.resources)
            await self._write_answer(seen.orders, announced)
            self._metrics.releases.inc()
        else:
            await self._write_answer(seen.orders, announced)
            await self._write_node(seen, announced, memory.resources)
        return {unit.card: unit.resource for unit in available}, step.look_again

    async def _write_node(self, seen: Snapshot, announced: Plugin, known: set[str]) -> None:
        status: dict[str, object] = {**resource_changes(seen.node.status, announced, known)}
        boot = boot_id(seen.node.name, seen.machine)
        if seen.node.status.node_info.boot_id != boot:
            status["nodeInfo"] = {"bootID": boot}
        if status:
            await self._client.patch(Node, seen.node.name, {"status": status}, subresource="status")

    async def _write_answer(self, orders: Orders | None, announced: Plugin) -> None:
        if orders is not None:
            desired = OrdersAnswer(OrdersShare(announced))
            await self._applier.apply(Orders, orders.name, desired, orders, subresource="status")

    async def _report_cards(self, seen: Snapshot, held: Mapping[str, tuple[User, ...]]) -> None:
        busy = frozenset(seen.addresses[name] for name in held if name in seen.addresses)
        backend = SimulatedBackend(seen.node.name, seen.machine, busy)
        for name, address in seen.addresses.items():
            card = seen.cards.get(name)
            if card is not None and not card.deleting:
                readings, signals = backend.readings(address), backend.signals(address)
                await self._reports.report(card, held.get(name, ()), seen.verdicts[name], readings, signals)

    async def _answer_pods(self, decided: Admission) -> None:
        """Pods start last: by now their cards say who holds them."""
        for pod, outcome in decided.outcomes:
            if isinstance(outcome, Shortage):
                self._metrics.refusals.inc()
                await self._answer_pod(pod, refused(pod, outcome))
            else:
                self._metrics.allocations.inc()
                await self._answer_pod(pod, allocated(pod, outcome, self._now()))

    async def _answer_pod(self, pod: Pod, answer: PodAnswer) -> None:
        try:
            await self._client.apply(
                Pod,
                pod.name,
                answer,
                manager=FieldManager(MANAGER),
                namespace=pod.metadata.namespace,
                subresource="status",
                # Decided on what was read: an answer that got lost on its way back must not be given differently.
                resource_version=pod.metadata.resource_version,
            )
        except NotFound:
            return  # It has just been deleted: the cache is about to tell.

    async def _clear_faults(self, node: Node, machine: Machine, cards: list[Card]) -> bool:
        """Reset the cards that a person says are mended; what is still wrong with them shows again at once."""
        marked = [card for card in cards if Annotation.CLEAR_FAULT in card.metadata.annotations]
        mended = machine
        for card in marked:
            mended = reset(mended, card.spec.pci_address)
        if mended != machine:
            await self._client.patch(
                Node,
                node.name,
                {"metadata": {"annotations": {HARDWARE: write_machine(mended)}}},
                resource_version=node.metadata.resource_version,
            )
        for card in marked:
            await self._client.patch(
                Card,
                card.name,
                {"metadata": {"annotations": {str(Annotation.CLEAR_FAULT): None}}},
                resource_version=card.metadata.resource_version,
            )
        return bool(marked)
