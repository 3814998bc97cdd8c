"""Wishes, pods and failures in any order: whatever happens, users keep what they have, and calm brings the target."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu_control_plane.agent.backends.interface import BackendError
from gpu_control_plane.agent.mig.apply import Outcome, Result, apply
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.rules.mig_layout import Slot
from unit.agent.mig.brute_force import legal
from unit.agent.mig.cards import H200, equal, layout
from unit.agent.mig.driver import ADDRESS, Driver, Killed

TARGETS = st.sampled_from(
    [
        None,
        *(equal(profile.name) for profile in H200.profiles),
        layout(g4=1, g3=1),
        layout(g3=1, g2=1, g1=2),
        layout(g3=1, g2=2),
        layout(g2=3, g1me=1),
        layout(g1=2),
        layout(g3=2, g1=1),
    ]
)
STRANGE = {layout(g3=2, g1=1)}


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(enabled=False)
        self.target: MIG | None = None
        self.wanted: frozenset[Slot] = frozenset()
        self.held: dict[Slot, str] = {}
        self.hidden: set[Slot] = set()

    @rule(asked=TARGETS)
    def ordered(self, asked: MIG | None) -> None:
        self.target = asked
        self.attempt()

    @rule(at=st.integers(0, 25), late=st.booleans(), killed=st.booleans(), asked=TARGETS)
    def ordered_in_trouble(self, at: int, late: bool, killed: bool, asked: MIG | None) -> None:
        before = self.driver.geometry, self.driver.enabled
        trouble = Killed() if killed else BackendError("no")
        self.target = asked
        self.driver.trouble, self.driver.at, self.driver.late = trouble, len(self.driver.calls) + at, late
        try:
            outcome = self.attempt()
        except Killed:
            return
        finally:
            self.driver.trouble = None
        if outcome.result is Result.FAILED:
            assert outcome.rolled_back
            assert (self.driver.geometry, self.driver.enabled) == before

    @rule(data=st.data())
    def pod_starts(self, data: st.DataObject) -> None:
        free = sorted((self.wanted & self.driver.geometry) - self.held.keys())
        if free:
            self.held[data.draw(st.sampled_from(free))] = f"ml/pod-{len(self.held)}"

    @rule(data=st.data())
    def pod_ends(self, data: st.DataObject) -> None:
        if self.held:
            del self.held[data.draw(st.sampled_from(sorted(self.held)))]

    @rule(data=st.data())
    def program_outside_kubernetes(self, data: st.DataObject) -> None:
        """It shows only when its instance is to go, and takes no notice of pods."""
        present = sorted(self.driver.geometry)
        self.hidden = set(data.draw(st.lists(st.sampled_from(present), max_size=2))) if present else set()
        self.driver.hides(self.hidden)

    @rule()
    def calm(self) -> None:
        """With nobody left, one run brings the target, and a second finds nothing to do."""
        self.held.clear()
        self.hidden.clear()
        self.driver.hides()
        if self.target in STRANGE:
            assert self.attempt().result is Result.MISCONFIGURED
            return
        assert self.attempt().result is Result.APPLIED
        assert self.driver.geometry == self.wanted
        assert self.driver.enabled is (self.target is not None)
        done = len(self.driver.changes)
        self.attempt()
        assert len(self.driver.changes) == done

    @invariant()
    def the_card_is_legal(self) -> None:
        assert legal(H200, self.driver.geometry)

    def attempt(self) -> Outcome:
        users = {slot: self.driver.uuid(slot) for slot in self.held.keys() | self.hidden}
        try:
            outcome = apply(self.driver, ADDRESS, self.target, self.held)
        finally:
            assert all(self.driver.uuid(slot) == uuid for slot, uuid in users.items())
        if outcome.result is not Result.FAILED:
            self.wanted = outcome.wanted
        return outcome


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
