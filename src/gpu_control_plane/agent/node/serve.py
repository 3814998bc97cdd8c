"""The agent of one node at work: what hardware, kubelet and API server say, one step, and the differences told."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from gpu_control_plane.agent.burnin.decide import Standing
from gpu_control_plane.agent.kubelet.podresources import KubeletUnavailable
from gpu_control_plane.agent.node.answers import Answers
from gpu_control_plane.agent.node.books import Books
from gpu_control_plane.agent.node.gathering import gather
from gpu_control_plane.agent.node.idleness import obstacle, passed, withheld
from gpu_control_plane.agent.node.metrics import NodeMetrics, OrderClock
from gpu_control_plane.agent.node.moment import Moment, Views
from gpu_control_plane.agent.node.offering import Offering
from gpu_control_plane.agent.node.parts import Hands, Parts
from gpu_control_plane.agent.node.picture import Picture, Seen
from gpu_control_plane.agent.node.quiesce import pause_reason
from gpu_control_plane.agent.node.views import LocalNode
from gpu_control_plane.agent.reports import CardReports
from gpu_control_plane.agent.units import CardID, ResourceName
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.gpunodestate import Plugin
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key

_KUBELET_AWAY: Final = 1.0
"""Seconds until a kubelet that did not answer is asked again."""

_log = structlog.get_logger(component="agent.node")


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
        self._reports = CardReports(hands.apply, metrics, now)
        self._answers = Answers(hands.apply, hands.events, now)
        self._books: Books | None = None
        self._burn_ins: dict[CardID, Standing | None] = {}
        self.orders = OrderClock(metrics.order_seconds, monotonic)
        self.offering = Offering(parts, metrics, self.orders, unpooled=unpooled, monotonic=monotonic)
        self.users: dict[str, tuple[User, ...]] = {}
        """Who holds what, by the address of a card or the UUID of a MIG instance."""
        self.looked = False
        """Whether the hardware was seen and made use of, as far as that goes, since the agent has started."""

    async def reconcile(self, _key: Key) -> Requeue | None:
        node = self._views.nodes.get(self._name)
        if node is None:
            return None
        paused = pause_reason(node.metadata.labels)
        if await self._heed(paused) or await self._clear_faults():
            return None
        picture = self._parts.watch.picture
        if picture is None:
            await self._answer(paused, None)
            return None
        try:
            return await self._serve(node, picture, paused)
        finally:
            self.looked = True

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

    async def _serve(self, node: LocalNode, picture: Picture, paused: str | None) -> Requeue | None:
        try:
            moment = await gather(node, self._views, self._parts, picture, self.offering.units.keys())
        except KubeletUnavailable as error:
            _log.info("the kubelet is away", why=str(error))
            await self._report(picture)
            return Requeue(_KUBELET_AWAY)
        self._books = moment.books
        self.users = moment.users
        if paused is None:
            self._burn_ins = await self._consider_burn_in(moment)
        again = await self.offering.step(
            moment,
            partial(self._answer, paused),
            withheld=withheld(self._burn_ins, moment.orders),
            paused=paused is not None,
        )
        if paused is None:
            await self._report(picture)
            self._parts.inspector.consider(moment.situation, moment.taken, unheard=self.offering.unheard)
        return None if again is None else Requeue(again)

    async def _consider_burn_in(self, moment: Moment) -> dict[CardID, Standing | None]:
        """How far each card is, and tests for those that are free for one."""
        burner = self._parts.burner
        offered = {unit.card for unit in self.offering.units} if self.offering.begun else moment.cards.keys()
        checked = not burner.after_checks or passed(self._parts.inspector.result)
        pools = {order.inventory_id: order.pool for order in moment.orders}

        def hindered(seen: Seen) -> str | None:
            healthy = self._parts.watch.is_healthy(seen.id)
            return obstacle(moment, seen, offered=offered, healthy=healthy, checked=checked)

        return await burner.consider(self._views.cards, moment.picture.seen, pools, hindered)

    async def _answer(self, paused: str | None, plugin: Plugin | None) -> None:
        state = self._views.states.get(self._name)
        if state is not None:
            await self._answers.answer(state, plugin, self._parts.inspector.told, paused)

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
