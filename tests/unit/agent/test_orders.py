"""The moving of cards keeps its promises whatever happens in between."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_control_plane.agent.orders import LOOK_PAUSE, Offer, accepted, answer, on_offer, recovered, step
from gpu_control_plane.api.allocation import Allocation, Mode, TimeSlice
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource, Plugin

CARDS = ("a", "b")
RESOURCES = ("one", "two")


def order(card: str, resource: str, mode: Mode = Mode.EXCLUSIVE) -> Assignment:
    shared = TimeSlice(replicas=4) if mode is Mode.TIME_SLICE else None
    return Assignment(
        inventory_id=card,
        pool="any",
        resources=(OfferedResource(name=resource, units=1),),
        allocation=Allocation(mode=mode, time_slice=shared),
    )


def listed(plugin: Plugin) -> dict[str, tuple[str, ...]]:
    return {resource.name: resource.inventory_ids for resource in plugin.resources}


def test_orders_for_unknown_cards_and_other_modes_are_not_carried_out() -> None:
    given = (order("a", "one"), order("stranger", "one"), order("b", "two", Mode.TIME_SLICE))
    assert accepted(given, CARDS) == {"a": "one"}


def test_a_new_card_is_offered_at_once() -> None:
    first = step({"a": "one"}, {}, {}, told=False, now=0.0)
    assert first.offers == {"a": Offer("one")}
    assert first.look_again is None


def test_a_card_leaves_after_two_looks_and_joins_the_other_resource_one_step_later() -> None:
    orders = {"a": "two"}
    looked = step(orders, {"a": Offer("one")}, {}, told=True, now=10.0)
    assert (looked.offers["a"].resource, looked.look_again) == ("one", LOOK_PAUSE)
    too_soon = step(orders, looked.offers, {}, told=True, now=10.0 + LOOK_PAUSE / 2)
    assert too_soon.offers == looked.offers
    gone = step(orders, looked.offers, {}, told=True, now=10.0 + LOOK_PAUSE)
    assert (gone.offers, gone.leaving, gone.look_again) == ({}, True, 0.0)
    assert step(orders, gone.offers, {}, told=True, now=11.0).offers == {"a": Offer("two")}


def test_looks_begin_only_when_the_kubelet_has_stopped_handing_the_card_out() -> None:
    waiting = step({}, {"a": Offer("one")}, {}, told=False, now=10.0)
    assert waiting.offers == {"a": Offer("one")}
    assert waiting.look_again is None


def test_a_card_in_use_stays_listed_but_is_not_handed_out() -> None:
    offers = step({}, {"a": Offer("one", looks=1)}, {"a": "one"}, told=True, now=10.0).offers
    plugin = answer(offers, on_offer({}, offers, CARDS), 7)
    (resource,) = plugin.resources
    assert (resource.name, resource.units, resource.healthy, resource.inventory_ids) == ("one", 1, 0, ("a",))
    assert plugin.observed_generation == 7


def test_a_card_in_use_is_listed_even_when_the_last_answer_was_lost() -> None:
    assert step({"a": "two"}, {}, {"a": "one"}, told=True, now=0.0).offers == {"a": Offer("one")}


def test_an_order_taken_back_makes_the_card_healthy_again_at_once() -> None:
    offers = step({"a": "one"}, {"a": Offer("one", looks=1, looked_at=1.0)}, {}, told=True, now=5.0).offers
    assert on_offer({"a": "one"}, offers, CARDS) == {"a": "one"}
    assert offers["a"].looks == 0


class Moving(RuleBasedStateMachine):
    """Orders, pods, faults, slow kubelets and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: dict[str, str] = {}
        self.offers: dict[str, Offer] = {}
        self.kubelet: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.unused_since: dict[str, float] = {}
        self.faulty: set[str] = set()
        self.now = 0.0
        self.plugin = Plugin(observed_generation=0)

    @rule(card=st.sampled_from(CARDS), resource=st.sampled_from(RESOURCES))
    def order(self, card: str, resource: str) -> None:
        self.orders[card] = resource

    @rule(card=st.sampled_from(CARDS))
    def withdraw(self, card: str) -> None:
        self.orders.pop(card, None)

    @rule(card=st.sampled_from(CARDS))
    def break_or_mend(self, card: str) -> None:
        self.faulty ^= {card}

    @rule()
    def restart(self) -> None:
        self.offers = recovered(self.plugin, {})

    @rule()
    def lose_the_answer(self) -> None:
        """Somebody deletes the GPUNodeState; inventory makes another one."""
        self.offers = {}
        self.kubelet = {}
        self.reconcile(0.0, told=True)

    @rule(passed=st.sampled_from((0.0, LOOK_PAUSE / 2, LOOK_PAUSE)), told=st.booleans())
    def reconcile(self, passed: float, told: bool) -> None:
        """One step, some time after the last; `told` says whether the kubelet has heard of it before the next."""
        self.now += passed
        well = set(CARDS) - self.faulty
        follows = self.kubelet == on_offer(self.orders, self.offers, well)
        before = self.offers
        done = step(self.orders, before, self.held, told=follows, now=self.now)
        left, joined = before.keys() - done.offers.keys(), done.offers.keys() - before.keys()
        for card in left:
            assert card not in self.held
            assert card not in self.kubelet
            assert self.now - self.unused_since.get(card, -1.0) >= LOOK_PAUSE
        assert not (left and joined)
        assert done.leaving == bool(left)
        self.offers = done.offers
        self.plugin = answer(done.offers, on_offer(self.orders, done.offers, well), 1)
        if told:
            self.kubelet = on_offer(self.orders, self.offers, well)

    @rule()
    def settle(self) -> None:
        """Time enough for everything that can happen to have happened."""
        for _ in range(5):
            self.reconcile(LOOK_PAUSE, told=True)

    @precondition(lambda self: self.kubelet)
    @rule(data=st.data())
    def start_pod(self, data: st.DataObject) -> None:
        """The kubelet hands out what it was told of, even if the orders have changed since."""
        free = sorted(card for card in self.kubelet if card not in self.held)
        if free:
            card = data.draw(st.sampled_from(free))
            self.held[card] = self.kubelet[card]
            self.unused_since.pop(card, None)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        card = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[card]
        self.unused_since[card] = self.now

    @invariant()
    def a_card_is_in_one_resource(self) -> None:
        everywhere = [card for cards in listed(self.plugin).values() for card in cards]
        assert len(everywhere) == len(set(everywhere))

    @invariant()
    def a_card_in_use_is_listed_where_it_was_handed_out(self) -> None:
        for card, resource in self.held.items():
            assert card in listed(self.plugin)[resource]

    @invariant()
    def what_is_announced_as_free_is_not_in_use_elsewhere(self) -> None:
        for card, resource in on_offer(self.orders, self.offers, CARDS).items():
            assert self.held.get(card, resource) == resource

    @invariant()
    def units_add_up(self) -> None:
        for resource in self.plugin.resources:
            assert 0 <= resource.healthy <= resource.units == len(resource.inventory_ids)


TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
