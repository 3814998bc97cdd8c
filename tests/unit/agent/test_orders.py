"""The moving of cards keeps its promises whatever happens in between."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_control_plane.agent.orders import LOOK_PAUSE, NOT_LOOKED, Look, answer, inherited, on_offer, recovered, step
from gpu_control_plane.agent.units import Unit, clash, replica_id
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Plugin

CARDS = ("a", "b")


def whole(card: str, resource: str) -> Unit:
    return Unit(resource, card, card)


def turns(card: str, resource: str, replicas: int) -> frozenset[Unit]:
    return frozenset(Unit(resource, replica_id(card, n), card, Mode.TIME_SLICE) for n in range(replicas))


def cut(card: str, resource: str, *places: tuple[int, int]) -> frozenset[Unit]:
    return frozenset(Unit(resource, f"{card}::{place}", card, Mode.MIG, place) for place in places)


ORDERS = (
    frozenset[Unit](),
    frozenset({whole("a", "one")}),
    frozenset({whole("a", "two")}),
    turns("a", "one", 2),
    turns("a", "one", 3),
    turns("a", "two", 2),
    cut("a", "one", (0, 4), (4, 8)),
    cut("a", "one", (0, 4), (4, 6), (6, 8)),
    cut("a", "two", (0, 4)) | cut("a", "three", (4, 8)),
)
"""What a card can be ordered to be: the other card is always the same under another name."""

ONE, TWO = whole("a", "one"), whole("a", "two")


def listed(plugin: Plugin) -> dict[str, tuple[str, ...]]:
    return {resource.name: resource.inventory_ids for resource in plugin.resources}


def test_a_new_card_is_offered_at_once() -> None:
    first = step({ONE}, {}, set(), lent=set(), now=0.0)
    assert first.offers == {ONE: NOT_LOOKED}
    assert first.look_again is None


def test_a_card_leaves_after_two_looks_and_joins_the_other_resource_one_step_later() -> None:
    looked = step({TWO}, {ONE: NOT_LOOKED}, set(), lent=set(), now=10.0)
    assert (list(looked.offers), looked.look_again) == ([ONE], LOOK_PAUSE)
    too_soon = step({TWO}, looked.offers, set(), lent=set(), now=10.0 + LOOK_PAUSE / 2)
    assert too_soon.offers == looked.offers
    gone = step({TWO}, looked.offers, set(), lent=set(), now=10.0 + LOOK_PAUSE)
    assert (gone.offers, gone.leaving, gone.look_again) == ({}, True, 0.0)
    assert list(step({TWO}, gone.offers, set(), lent=set(), now=11.0).offers) == [TWO]


def test_looks_begin_only_when_the_kubelet_has_stopped_handing_the_card_out() -> None:
    waiting = step(set(), {ONE: NOT_LOOKED}, set(), lent={ONE}, now=10.0)
    assert waiting.offers == {ONE: NOT_LOOKED}
    assert waiting.look_again == LOOK_PAUSE


def test_a_card_in_use_stays_listed_but_is_not_handed_out() -> None:
    offers = step(set(), {ONE: Look(1)}, {ONE}, lent=set(), now=10.0).offers
    plugin = answer(offers, on_offer(set(), offers, CARDS), 7)
    (resource,) = plugin.resources
    assert (resource.name, resource.units, resource.healthy, resource.inventory_ids) == ("one", 1, 0, ("a",))
    assert plugin.observed_generation == 7


def test_a_card_in_use_is_listed_even_when_the_last_answer_was_lost() -> None:
    assert list(step({TWO}, {}, {ONE}, lent=set(), now=0.0).offers) == [ONE]


def test_an_order_taken_back_makes_the_card_healthy_again_at_once() -> None:
    offers = step({ONE}, {ONE: Look(1, 1.0)}, set(), lent=set(), now=5.0).offers
    assert on_offer({ONE}, offers, CARDS) == {ONE}
    assert offers[ONE] == NOT_LOOKED


def test_more_turns_join_while_others_are_taken() -> None:
    three = turns("a", "one", 3)
    first = Unit("one", replica_id("a", 0), "a", Mode.TIME_SLICE)
    done = step(three, dict.fromkeys(turns("a", "one", 2), NOT_LOOKED), {first}, lent=set(), now=0.0)
    assert set(done.offers) == three


def test_instances_beside_one_in_use_may_change() -> None:
    old, new = cut("a", "one", (0, 4), (4, 8)), cut("a", "one", (0, 4), (4, 6))
    taken = cut("a", "one", (0, 4))
    offers: dict[Unit, Look] = dict.fromkeys(old, NOT_LOOKED)
    for now in (0.0, 1.0, 2.0):
        offers = step(new, offers, taken, lent=set(), now=now).offers
    assert set(offers) == new


def test_what_is_not_remembered_of_an_answer_counts_as_the_whole_card() -> None:
    plugin = answer(dict.fromkeys(turns("a", "one", 2), NOT_LOOKED), (), 1)
    assert recovered(plugin, {}) == {ONE: NOT_LOOKED}
    remembered = dict.fromkeys(turns("a", "one", 2), Look(1))
    assert recovered(plugin, remembered) == remembered


def test_a_new_agent_waits_only_for_cards_that_were_listed_elsewhere() -> None:
    plugin = answer(dict.fromkeys((ONE, whole("b", "one")), NOT_LOOKED), (), 1)
    assert list(inherited(plugin, {TWO, *turns("b", "one", 2)})) == [ONE]


def test_cards_in_no_pool_are_counted_and_not_named() -> None:
    offers = {ONE: NOT_LOOKED, whole("b", "two"): NOT_LOOKED}
    told = {each.name: (each.units, each.inventory_ids) for each in answer(offers, (), 1, unpooled="one").resources}
    assert told == {"one": (1, ()), "two": (1, ("b",))}


class Moving(RuleBasedStateMachine):
    """Orders, pods, faults, slow kubelets and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: dict[str, frozenset[Unit]] = {}
        self.offers: dict[Unit, Look] = {}
        self.kubelet: set[Unit] = set()
        self.held: set[Unit] = set()
        self.unused_since: dict[Unit, float] = {}
        self.faulty: set[str] = set()
        self.now = 0.0
        self.plugin = Plugin(observed_generation=0)

    @property
    def wanted(self) -> set[Unit]:
        return {unit for units in self.orders.values() for unit in units}

    @rule(card=st.sampled_from(CARDS), units=st.sampled_from(ORDERS))
    def order(self, card: str, units: frozenset[Unit]) -> None:
        renamed = (Unit(u.resource, u.id.replace("a", card, 1), card, u.mode, u.slices) for u in units)
        self.orders[card] = frozenset(renamed)

    @rule(card=st.sampled_from(CARDS))
    def break_or_mend(self, card: str) -> None:
        self.faulty ^= {card}

    @rule()
    def restart(self) -> None:
        """Nothing is remembered. The kubelet hands nothing out until it hears from the new agent."""
        self.offers = inherited(self.plugin, self.wanted)
        self.kubelet = set()

    @rule()
    def lose_the_answer(self) -> None:
        """Somebody deletes the GPUNodeState; inventory makes another one."""
        self.offers = {}
        self.kubelet = set()
        self.reconcile(0.0, told=True)

    @rule(passed=st.sampled_from((0.0, LOOK_PAUSE / 2, LOOK_PAUSE)), told=st.booleans())
    def reconcile(self, passed: float, told: bool) -> None:
        """One step, some time after the last; `told` says whether the kubelet has heard of it before the next."""
        self.now += passed
        before = self.offers
        done = step(self.wanted, before, self.held, lent=self.kubelet, now=self.now)
        gone, joined = before.keys() - done.offers.keys(), done.offers.keys() - before.keys()
        left = {unit for unit in gone if not overruled(unit, self.held)}
        assert not gone & self.held
        assert not gone & self.kubelet
        for unit in left:
            assert self.now - self.unused_since.get(unit, -1.0) >= LOOK_PAUSE
        assert not (left and joined - self.held)
        self.offers = done.offers
        available = on_offer(self.wanted, done.offers, set(CARDS) - self.faulty)
        self.plugin = answer(done.offers, available, 1)
        if told:
            self.kubelet = available

    @rule()
    def settle(self) -> None:
        """Time enough for everything that can happen to have happened."""
        for _ in range(6):
            self.reconcile(LOOK_PAUSE, told=True)
        blocked = {unit for unit in self.wanted if overruled(unit, self.held)}
        assert self.wanted - blocked <= self.offers.keys() <= self.wanted | self.held

    @precondition(lambda self: self.kubelet)
    @rule(data=st.data())
    def start_pod(self, data: st.DataObject) -> None:
        """The kubelet hands out what it was told of, even if the orders have changed since."""
        free = sorted(self.kubelet - self.held, key=lambda unit: (unit.resource, unit.id))
        if free:
            unit = data.draw(st.sampled_from(free))
            assert not overruled(unit, self.held), "two pods on one place"
            self.held.add(unit)
            self.unused_since.pop(unit, None)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from(sorted(self.held, key=lambda unit: (unit.resource, unit.id))))
        self.held.remove(unit)
        self.unused_since[unit] = self.now

    @invariant()
    def nothing_handed_out_clashes_with_anything_listed(self) -> None:
        for unit in self.kubelet:
            assert not overruled(unit, (self.offers.keys() | self.held | self.kubelet) - {unit})

    @invariant()
    def what_is_in_use_is_listed_where_it_was_handed_out(self) -> None:
        for unit in self.held:
            assert unit.card in listed(self.plugin)[unit.resource]

    @invariant()
    def units_add_up(self) -> None:
        for resource in self.plugin.resources:
            assert 0 <= resource.healthy <= resource.units
            assert len(resource.inventory_ids) <= resource.units


def overruled(unit: Unit, others: Iterable[Unit]) -> bool:
    return any(clash(unit, other) for other in others)


TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
