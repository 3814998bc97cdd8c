"""What is on offer: one step from the orders to the kubelet, the desk that hands units out, and the answer.

Everything is derived anew each time. What is remembered between two steps, the looks at unused units, only ever
delays a release; a new agent finds the rest in the kubelet's books and in its predecessor's last answer.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent import orders as protocol
from gpu_control_plane.agent.cdi.grants import device_name
from gpu_control_plane.agent.kubelet.interface import Device
from gpu_control_plane.agent.node.cutting import Cut
from gpu_control_plane.agent.node.desk import Stock, grantables
from gpu_control_plane.agent.node.metrics import NodeMetrics, OrderClock
from gpu_control_plane.agent.node.moment import Moment
from gpu_control_plane.agent.node.parts import Parts
from gpu_control_plane.agent.node.rivals import Claims, rivals
from gpu_control_plane.agent.node.wishes import cuts, obstacles, wanted
from gpu_control_plane.agent.orders import Look
from gpu_control_plane.agent.units import CardID, ResourceName, Unit
from gpu_control_plane.api.gpunodestate import Plugin

_SETTLING: Final = 1.0
"""Seconds until the kubelet's books are read again while they are about to change."""
_HEARING: Final = 30.0
"""Seconds for which a kubelet that does not list what it was told of is asked again and again."""

type Answer = Callable[[Plugin], Awaitable[None]]


class Offering:
    """`unpooled` is the resource of cards in no pool; None keeps them to ourselves."""

    def __init__(
        self,
        parts: Parts,
        metrics: NodeMetrics,
        orders: OrderClock,
        *,
        unpooled: ResourceName | None,
        monotonic: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._metrics = metrics
        self._orders = orders
        self._unpooled = unpooled
        self._monotonic = monotonic
        self._claims = Claims(monotonic)
        self._offers: dict[Unit, Look] | None = None
        self._unheard_since: float | None = None

    @property
    def begun(self) -> bool:
        """Whether a first step was made: before, nothing on offer means nothing."""
        return self._offers is not None

    @property
    def units(self) -> Mapping[Unit, Look]:
        """What the kubelet is told of."""
        return self._offers or {}

    @property
    def unheard(self) -> bool:
        """Whether the kubelet has yet to list something that it was told of."""
        return self._unheard_since is not None

    async def step(self, moment: Moment, answer: Answer, *, withheld: Set[CardID], paused: bool) -> float | None:
        """One step of the orders, for the kubelet and in the answer; returns when the next one is due.

        Cards that are withheld are offered to nobody; while it is paused, nothing is.
        """
        cut = Cut(geometries={}, problems=(), changed=False, retry=None)
        units = set(self.units)
        if not paused:
            wishes = cuts(moment.orders, moment.cards)
            cut = await self._parts.cutter.cut(wishes, moment.cards, self.units.keys(), moment.held)
            if cut.changed:
                await self._parts.watch.probe()
                return 0.0
            units = await self._wanted(moment, cut, withheld)
        if self._offers is None:
            self._offers = self._inherit(moment, units)
        lent = {unit for unit in self._offers if unit.id in moment.allocatable.get(unit.resource, ())}
        step = protocol.step(units, self._offers, moment.held.keys(), lent=lent, now=self._monotonic())
        self._offers = step.offers

        conflicts = self._conflicts(moment)
        well = {card for card in moment.cards if self._parts.watch.is_healthy(card)}
        available = set() if paused or conflicts else protocol.on_offer(units, step.offers, well)
        self._restock(moment, available)
        problems = {
            problem.inventory_id: problem for problem in (*cut.problems, *obstacles(moment.orders, moment.cards))
        }
        plugin = msgspec.structs.replace(
            protocol.answer(step.offers, available, moment.generation, unpooled=self._unpooled),
            problems=tuple(problems[card] for card in sorted(problems)),
            conflicts=conflicts,
        )
        if step.leaving or paused:
            # The kubelet first: as soon as the answer no longer lists a card, or says that we have let go of the
            # driver, others rely on it.
            await self._announce(moment, available)
            await answer(plugin)
            self._metrics.releases.inc(step.leaving)
        else:
            await answer(plugin)
            await self._announce(moment, available)
        if not step.leaving:
            self._orders.carried_out(moment.generation)
        waits = (step.look_again, cut.retry, _SETTLING if moment.busy else None, self._hearing(moment, available))
        return min((wait for wait in waits if wait is not None), default=None)

    def _inherit(self, moment: Moment, units: Set[Unit]) -> dict[Unit, Look]:
        """What the agent before us left behind. The Node may still show all of its resources."""
        left = moment.state.status.plugin if moment.state else None
        self._claims.renew(resource.name for resource in (left.resources if left else ()))
        return protocol.inherited(left, units)

    async def _wanted(self, moment: Moment, cut: Cut, withheld: Set[CardID]) -> set[Unit]:
        """The units to offer: only what a container can really be given, written down before it is offered."""
        held = {device_name(unit.id) for unit in moment.held}
        description = await self._parts.wardrobe.refresh(moment.picture, held)
        there = grantables(description)
        units = wanted(moment.orders, moment.cards, cut.geometries, self._unpooled)
        return {unit for unit in units if device_name(unit.id) in there and unit.card not in withheld}

    def _conflicts(self, moment: Moment) -> tuple[ResourceName, ...]:
        ours = self._claims.renew(unit.resource for unit in self.units)
        return rivals(moment.node.status.allocatable, ours | ({self._unpooled} if self._unpooled else set()))

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
        for unit in self.units:
            seen = moment.picture.seen.get(unit.card)
            numa = seen.hardware.numa_node if seen else None
            lists[unit.resource].append(Device(unit.id, unit in available, numa))
        for resource, devices in lists.items():
            await self._parts.plugins.announce(resource, devices)
        for resource in self._parts.plugins.states.keys() - lists.keys():
            await self._parts.plugins.withdraw(resource)

    def _hearing(self, moment: Moment, available: Set[Unit]) -> float | None:
        """When to look whether the kubelet lists what it was told of. It confirms nothing, and nobody else would."""
        if all(unit.id in moment.allocatable.get(unit.resource, ()) for unit in available):
            self._unheard_since = None
            return None
        now = self._monotonic()
        if self._unheard_since is None:
            self._unheard_since = now
        return _SETTLING if now < self._unheard_since + _HEARING else None
