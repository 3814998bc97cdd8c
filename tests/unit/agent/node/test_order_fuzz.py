"""Whatever is ordered, one order after another and with pods in the way: nothing breaks, nothing is offered twice,
nothing is offered that is not there, and what is not carried out is said."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import combinations
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent import orders as protocol
from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.mig.layout import Slot
from gpu_control_plane.agent.node.books import slot_of
from gpu_control_plane.agent.node.cutting import RETRY, Cutter
from gpu_control_plane.agent.node.desk import Desk, Stock
from gpu_control_plane.agent.node.picture import Seen, look
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.node.wishes import cuts, known, obstacles, wanted
from gpu_control_plane.agent.orders import LOOK_PAUSE, Look
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.units import Unit, clash
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import MAX_CARDS, Assignment, Injection, OrderProblem, Plugin
from unit.agent.node.nonsense import named, orders
from unit.agent.node.scenes import NODE, device

MODELS = ("H200-141", "A100-80", "L40S")
ROUNDS = 12
"""More than any change of orders takes when nobody is in the way."""
MOST_RESOURCES = 128
LONGEST_MESSAGE = 1024


class Node:
    """The agent's decisions over simulated cards, with a kubelet that does as it is told."""

    def __init__(self, model: str, unpooled: str | None) -> None:
        self.below = SimulatedBackend(NODE, new_machine(model, 4))
        self.below.open()
        self.unpooled = unpooled
        self.now = 0.0
        self.cutter = Cutter(cast("HardwareWatch", self), monotonic=lambda: self.now)
        self.offers: dict[Unit, Look] = {}
        self.available: set[Unit] = set()
        self.held: dict[Unit, str] = {}
        self.problems: dict[str, OrderProblem] = {}
        self.plugin = Plugin(observed_generation=0)

    async def call[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        return function(self.below, *arguments)

    async def round(self, given: list[Assignment]) -> None:
        """What `NodeServer` does in one step."""
        self.now += max(LOOK_PAUSE, RETRY)
        cards = self.cards()
        cut = await self.cutter.cut(cuts(given, cards), cards, self.offers.keys(), self.held)
        if cut.changed:
            return
        units = wanted(given, cards, cut.geometries, self.unpooled)
        lent = self.available & self.offers.keys()  # as the kubelet was told the last time
        step = protocol.step(units, self.offers, self.held.keys(), lent=lent - units, now=self.now)
        self.offers = step.offers
        self.available = protocol.on_offer(units, step.offers, cards.keys())
        self.problems = {each.inventory_id: each for each in (*cut.problems, *obstacles(given, cards))}
        self.plugin = protocol.answer(step.offers, self.available, 1, unpooled=self.unpooled)
        self.available_is_sound(cards)
        self.answer_is_sound()
        self.choices_are_sound(cards)

    def cards(self) -> Mapping[str, Seen]:
        picture = look(NODE, self.below)
        return known(picture, [device(seen) for seen in picture.seen.values()])

    def available_is_sound(self, cards: Mapping[str, Seen]) -> None:
        free = self.available - self.held.keys()
        of_card: dict[str, list[Unit]] = {}
        for unit in free | self.held.keys():
            of_card.setdefault(unit.card, []).append(unit)
        for units in of_card.values():
            for one, other in combinations(units, 2):
                assert not clash(one, other), f"{one} and {other} are both on offer or held"
        for unit in self.available:
            seen = cards[unit.card]
            assert seen.is_cut is (unit.mode is Mode.MIG)
            if unit.mode is Mode.MIG:
                assert slot_of(unit) in {Slot.of(instance) for instance in self.below.instances(seen.address)}

    def answer_is_sound(self) -> None:
        """Within the bounds of the CRD, or the API server would refuse it."""
        assert len(self.plugin.resources) <= MOST_RESOURCES
        assert len(self.problems) <= MAX_CARDS
        assert all(len(problem.message) <= LONGEST_MESSAGE for problem in self.problems.values())

    def choices_are_sound(self, cards: Mapping[str, Seen]) -> None:
        """The kubelet may ask for any number of a resource's units."""
        desk = Desk(cast("HardwareWatch", self), Injection.CDI)
        desk.stock = Stock(available=frozenset(self.available), held=frozenset(self.held), cards=cards)
        for resource in {unit.resource for unit in self.available}:
            ids = sorted(unit.id for unit in self.available if unit.resource == resource)
            for size in (1, len(ids)):
                chosen = desk.prefer(resource, ids, ids[:1], size)
                assert len(chosen) == size
                assert set(ids[:1]) <= set(chosen) <= set(ids)


def play(story: Coroutine[None, None, None]) -> None:
    asyncio.run(story)


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_orders_one_after_another_with_pods_in_the_way(model: str, data: st.DataObject) -> None:
    async def story() -> None:
        node = Node(model, data.draw(st.sampled_from([None, "nvidia.com/gpu"])))
        for _ in range(data.draw(st.integers(1, 4))):
            given = data.draw(orders)
            if data.draw(st.booleans()):
                given = [named(order) for order in given]
            for _ in range(data.draw(st.integers(1, 6))):
                await node.round(given)
                free = sorted(node.available - node.held.keys(), key=lambda unit: (unit.resource, unit.id))
                if data.draw(st.booleans()) and free:
                    taken = data.draw(st.sampled_from(free))
                    node.held[taken] = f"{'n' * 63}/{'pod' * 84}"
            if data.draw(st.booleans()) and node.held:
                node.held.pop(data.draw(st.sampled_from(list(node.held))))

    play(story())


@pytest.mark.parametrize("model", MODELS)
@given(before=orders, given=orders)
@settings(max_examples=20, deadline=None)
def test_in_calm_every_order_is_carried_out_or_answered_for(
    model: str, before: list[Assignment], given: list[Assignment]
) -> None:
    async def story() -> None:
        node = Node(model, None)
        for wishes in (before, given):
            for _ in range(ROUNDS):
                await node.round(wishes)
        served = {unit.card for unit in node.available}
        silent = [order for order in given if order.inventory_id not in served | node.problems.keys()]
        assert silent == []
        assert node.offers.keys() == node.available, "nothing is left over from the orders before"

    play(story())
