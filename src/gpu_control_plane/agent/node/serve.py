"""The agent of one node at work: what the hardware, the kubelet and the API server say, one step, the differences told.

Everything is derived anew each time. What is remembered between two steps, the looks at unused units, only ever
delays a release; a new agent finds the rest in the kubelet's books and in its predecessor's last answer.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from datetime import datetime
from typing import Final

import msgspec
import structlog

from gpu_control_plane.agent import orders as protocol
from gpu_control_plane.agent.burnin.decide import Standing
from gpu_control_plane.agent.cdi.grants import device_name
from gpu_control_plane.agent.kubelet.interface import Device
from gpu_control_plane.agent.kubelet.plugins import Plugins
from gpu_control_plane.agent.kubelet.podresources import KubeletUnavailable, PodResources
from gpu_control_plane.agent.node.answers import Answers
from gpu_control_plane.agent.node.books import Books, Place, read_books, starting, unsettled
from gpu_control_plane.agent.node.burning import Burner
from gpu_control_plane.agent.node.cutting import Cut, Cutter
from gpu_control_plane.agent.node.desk import Desk, Stock, grantables
from gpu_control_plane.agent.node.idleness import obstacle, passed, withheld
from gpu_control_plane.agent.node.inspection import Inspector
from gpu_control_plane.agent.node.metrics import NodeMetrics
from gpu_control_plane.agent.node.moment import Moment, Views
from gpu_control_plane.agent.node.picture import Picture, Seen
from gpu_control_plane.agent.node.quiesce import pause_reason
from gpu_control_plane.agent.node.rivals import rivals
from gpu_control_plane.agent.node.views import LocalNode, NodeState
from gpu_control_plane.agent.node.wardrobe import Wardrobe
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.node.wishes import cuts, known, obstacles, wanted
from gpu_control_plane.agent.orders import Look
from gpu_control_plane.agent.reports import CardReports
from gpu_control_plane.agent.units import CardID, ResourceName, Unit
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Plugin
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Key

_KUBELET_AWAY: Final = 1.0
"""Seconds until a kubelet that did not answer is asked again."""
_SETTLING: Final = 1.0
"""Seconds until the kubelet's books are read again while they are about to change."""

_log = structlog.get_logger(component="agent.node")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent works with."""

    watch: HardwareWatch
    plugins: Plugins
    books: PodResources
    desk: Desk
    cutter: Cutter
    wardrobe: Wardrobe
    inspector: Inspector
    burner: Burner


class Hands(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent writes to the cluster."""

    client: Client
    apply: Applier
    events: EventRecorder


class NodeServer:
    """Brings the node up to date with its orders, its hardware and its pods."""

    def __init__(
        self,
        name: str,
        views: Views,
        parts: Parts,
        hands: Hands,
        metrics: NodeMetrics,
        *,
        unpooled: ResourceName | None,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._views = views
        self._parts = parts
        self._hands = hands
        self._metrics = metrics
        self._reports = CardReports(hands.apply, metrics, now)
        self._answers = Answers(hands.apply, hands.events, now)
        self._unpooled = unpooled
        self._monotonic = monotonic
        self._offers: dict[Unit, Look] | None = None
        self._books: Books | None = None
        self._burn_ins: dict[CardID, Standing | None] = {}
        self._announced: set[ResourceName] = set()
        self._ordered_at: dict[int, float] = {}
        self.users: dict[str, tuple[User, ...]] = {}
        """Who holds what, by the address of a card or the UUID of a MIG instance."""

    @property
    def offers(self) -> Mapping[Unit, Look]:
        """What the kubelet is told of."""
        return self._offers or {}

    def heard(self, old: NodeState | None, new: NodeState | None) -> None:
        """Orders have arrived: from here on the time is counted until the kubelet has been told."""
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._ordered_at = {new.metadata.generation: self._monotonic()}

    async def reconcile(self, _key: Key) -> Requeue | None:
        node = self._views.nodes.get(self._name)
        if node is None:
            return None
        paused = pause_reason(node.metadata.labels)
        if await self._heed(paused) or await self._clear_faults():
            return None
        picture = self._parts.watch.picture
        if picture is None:
            await self._answer(None, paused)
            return None
        try:
            moment = await self._moment(node, picture)
        except KubeletUnavailable as error:
            _log.info("the kubelet is away", why=str(error))
            await self._report(picture)
            return Requeue(_KUBELET_AWAY)
        self._books = moment.books
        self.users = moment.users
        if paused is None:
            self._burn_ins = await self._consider_burn_in(moment)
        again = await self._serve(moment, paused)
        if paused is None:
            await self._report(picture)
            self._parts.inspector.consider(moment.situation, moment.taken)
        return None if again is None else Requeue(again)

    async def _heed(self, paused: str | None) -> bool:
        """Let go of the driver while somebody else wants it; True when the next probe brings us back here."""
        watch = self._parts.watch
        if paused is not None and not watch.quiesced:
            _log.info("letting go of the driver", reason=paused)
            await self._parts.inspector.break_off()
            await self._parts.burner.break_off()
            await watch.let_go()
        elif paused is None and watch.quiesced:
            _log.info("taking hold of the driver again")
            watch.take_hold()
            self._parts.inspector.forget()
            return True
        return False

    async def _clear_faults(self) -> bool:
        """Look anew at the cards that a person says are mended; True when there were some."""
        marked = [card for card in self._views.cards if Annotation.CLEAR_FAULT in card.metadata.annotations]
        if not marked or self._parts.watch.quiesced:
            return False
        await self._parts.watch.probe(frozenset(card.name for card in marked))
        self._parts.burner.clear(marked)
        for card in marked:
            body = {"metadata": {"annotations": {str(Annotation.CLEAR_FAULT): None}}}
            await self._hands.client.patch(Card, card.name, body, resource_version=card.metadata.resource_version)
        return True

    async def _moment(self, node: LocalNode, picture: Picture) -> Moment:
        entries = await self._parts.books.list()
        allocatable = await self._parts.books.allocatable()
        pods = list(self._views.pods)
        books = read_books(entries, self._places(picture))
        held = dict(books.held)
        for unit in self._parts.desk.pending(books.held):
            held.setdefault(unit, "a pod that is starting")
        initializing = starting(pods)
        for unit in self.offers:
            if unit.resource in initializing:
                held.setdefault(unit, "perhaps an init container")
        return Moment(
            node=node,
            state=self._views.states.get(self._name),
            picture=picture,
            cards=known(picture, self._views.cards),
            books=books,
            held=held,
            allocatable=allocatable,
            busy=unsettled(pods, books, {unit.resource for unit in self.offers}),
        )

    def _places(self, picture: Picture) -> dict[str, Place]:
        """Every card that was ever heard of by its UUID: a pod may hold one that has left the machine."""
        places = {
            card.status.hardware.uuid: Place(card.name, None)
            for card in self._views.cards
            if card.status.hardware and card.status.hardware.uuid
        }
        return places | {uuid: Place(seen.id, seen.hardware) for uuid, seen in picture.by_uuid().items()}

    async def _serve(self, moment: Moment, paused: str | None) -> float | None:
        """One step of the orders, for the kubelet and in the answer; returns when the next one is due."""
        watch = self._parts.watch
        if paused is not None:
            cut = Cut(geometries={}, problems=(), changed=False, retry=None)
            units = set(self.offers)
        else:
            cut = await self._parts.cutter.cut(
                cuts(moment.orders, moment.cards), moment.cards, self.offers.keys(), moment.held
            )
            if cut.changed:
                await watch.probe()
                return 0.0
            units = await self._wanted(moment, cut)
        if self._offers is None:
            self._offers = protocol.inherited(moment.state.status.plugin if moment.state else None, units)
        lent = {unit for unit in self._offers if unit.id in moment.allocatable.get(unit.resource, ())}
        step = protocol.step(units, self._offers, moment.held.keys(), lent=lent, now=self._monotonic())
        self._offers = step.offers

        problems = {
            problem.inventory_id: problem for problem in (*cut.problems, *obstacles(moment.orders, moment.cards))
        }
        conflicts = rivals(moment.node.status.allocatable, self._ours(moment.node.status.allocatable))
        well = {card for card in moment.cards if self._healthy(card)}
        available = set() if paused or conflicts else protocol.on_offer(units, step.offers, well)
        self._restock(moment, available)
        plugin = msgspec.structs.replace(
            protocol.answer(step.offers, available, moment.generation, unpooled=self._unpooled),
            problems=tuple(problems[card] for card in sorted(problems)),
            conflicts=conflicts,
        )
        if step.leaving or paused:
            # The kubelet first: as soon as the answer no longer lists a card, or says that we have let go of the
            # driver, others rely on it.
            await self._announce(moment, available)
            await self._answer(plugin, paused)
            self._metrics.releases.inc(step.leaving)
        else:
            await self._answer(plugin, paused)
            await self._announce(moment, available)
        if not step.leaving:
            self._told(moment)
        waits = (step.look_again, cut.retry, _SETTLING if moment.busy else None)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _wanted(self, moment: Moment, cut: Cut) -> set[Unit]:
        """The units to offer: only what a container can really be given, written down before it is offered."""
        held = {device_name(unit.id) for unit in moment.held}
        description = await self._parts.wardrobe.refresh(moment.picture, held)
        there = grantables(description)
        units = wanted(moment.orders, moment.cards, cut.geometries, self._unpooled)
        kept = withheld(self._burn_ins, moment.orders)
        return {unit for unit in units if device_name(unit.id) in there and unit.card not in kept}

    async def _consider_burn_in(self, moment: Moment) -> dict[CardID, Standing | None]:
        """How far each card is, and tests for those that are free for one."""
        burner = self._parts.burner
        offered = {unit.card for unit in self.offers} if self._offers is not None else moment.cards.keys()
        checked = not burner.after_checks or passed(self._parts.inspector.result)
        pools = {order.inventory_id: order.pool for order in moment.orders}

        def hindered(seen: Seen) -> str | None:
            return obstacle(moment, seen, offered=offered, healthy=self._healthy(seen.id), checked=checked)

        return await burner.consider(self._views.cards, moment.picture.seen, pools, hindered)

    def _healthy(self, card: CardID) -> bool:
        found = self._parts.watch.verdicts.get(card)
        return found is not None and found.healthy

    def _ours(self, allocatable: Mapping[ResourceName, str]) -> set[ResourceName]:
        """The resources that we serve, and those we have withdrawn of which the Node does not know that yet."""
        fading = {name for name in self._announced if allocatable.get(name, "0") != "0"}
        self._announced = {unit.resource for unit in self.offers} | fading
        return self._announced | ({self._unpooled} if self._unpooled else set())

    def _restock(self, moment: Moment, available: Set[Unit]) -> None:
        description = self._parts.wardrobe.description
        self._parts.desk.stock = Stock(
            available=frozenset(available),
            held=frozenset(moment.held),
            cards=moment.cards,
            grantables=grantables(description) if description else {},
            common=description.common if description else self._parts.desk.stock.common,
        )

    async def _announce(self, moment: Moment, available: Set[Unit]) -> None:
        lists: dict[ResourceName, list[Device]] = defaultdict(list)
        for unit in self.offers:
            seen = moment.picture.seen.get(unit.card)
            numa = seen.hardware.numa_node if seen else None
            lists[unit.resource].append(Device(unit.id, unit in available, numa))
        for resource, devices in lists.items():
            await self._parts.plugins.announce(resource, devices)
        for resource in self._parts.plugins.states.keys() - lists.keys():
            await self._parts.plugins.withdraw(resource)

    async def _answer(self, plugin: Plugin | None, paused: str | None) -> None:
        state = self._views.states.get(self._name)
        if state is not None:
            await self._answers.answer(state, plugin, self._parts.inspector.told, paused)

    def _told(self, moment: Moment) -> None:
        began = self._ordered_at.pop(moment.generation, None)
        if began is not None:
            self._metrics.order_seconds.observe(self._monotonic() - began)

    async def _report(self, picture: Picture) -> None:
        """Say how every card is. While the kubelet is away its users are those that were last known."""
        for card in self._views.cards:
            seen, found = picture.seen.get(card.name), self._parts.watch.verdicts.get(card.name)
            if seen is None or found is None or card.deleting or self._books is None:
                continue
            if card.name not in self._burn_ins:
                continue  # Whether it has to be tested is told together with its health, or it would be pooled before.
            users, burn_in = self._books.users.get(card.name, ()), self._burn_ins[card.name]
            await self._reports.report(card, users, found, seen.readings, seen.signals, burn_in=burn_in)
