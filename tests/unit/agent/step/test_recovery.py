"""A card falls at once and rises slowly, whatever the order of signals, restarts and people."""

from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.backends.interface import Recovery, Signals
from gpu_control_plane.agent.health import WORKS, unseen
from gpu_control_plane.agent.step import recovery
from gpu_control_plane.agent.step.recovery import RECOVERY, WATCHED, CardHealth, Judgement, recalled
from gpu_control_plane.agent.vendors.nvidia.health import APPLICATION_XIDS, HARMLESS_XIDS, RULES, is_fault
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import Condition

judge = partial(recovery.judge, rules=RULES)
GOOD = Signals()
FATAL = Signals(xids=(119,))


def fallen(signals: Signals = FATAL, now: float = 0.0, memory: CardHealth | None = None) -> CardHealth:
    found = judge(memory or CardHealth(), signals, now)
    assert not found.verdict.healthy
    return found.memory


def until_healthy(memory: CardHealth, signals: Signals, now: float) -> tuple[CardHealth, float]:
    """Probe when asked to; where the card ends up and how long that took."""
    start = now
    for _ in range(1000):
        found = judge(memory, signals, now)
        memory = found.memory
        if found.verdict.healthy:
            return memory, now - start
        assert found.next_probe is not None
        assert found.next_probe > now
        now = found.next_probe
    raise AssertionError("the card never came back")


def written(found: Judgement, now: datetime) -> Condition:
    return condition((), "Healthy", found.verdict.healthy, found.verdict.reason, found.verdict.message, now=now)


def test_a_card_that_works_is_probed_in_the_usual_rhythm() -> None:
    assert judge(CardHealth(), GOOD, 5.0) == (CardHealth(), WORKS, None, False)


def test_a_faulted_card_returns_after_three_good_probes_over_a_minute() -> None:
    memory = fallen()
    steps = [judge(memory, FATAL, 10.0)]
    for now in (40.0, 70.0):
        steps.append(judge(steps[-1].memory, FATAL, now))
    assert [(step.verdict.healthy, step.next_probe, step.forget) for step in steps] == [
        (False, 40.0, False),
        (False, 70.0, False),
        (True, None, True),
    ]
    assert steps[0].verdict.reason == "XID119"
    assert steps[0].verdict.message.endswith(WATCHED)


@pytest.mark.parametrize("times", [(1.0, 2.0, 59.0), (1.0, 61.0), (1.0, 1.0, 1.0, 1.0)])
def test_neither_time_nor_probes_alone_heal_a_card(times: tuple[float, ...]) -> None:
    memory = fallen()
    for now in times:
        memory, found, _, _ = judge(memory, FATAL, now)
        assert not found.healthy


def test_one_bad_probe_starts_the_wait_anew() -> None:
    memory = fallen()
    for now in (1.0, 31.0):
        memory = judge(memory, FATAL, now).memory
    memory = judge(memory, Signals(xids=(119,), lost=True), 60.0).memory
    found = judge(memory, FATAL, 61.0)
    assert not found.verdict.healthy
    assert until_healthy(memory, FATAL, 61.0)[1] == 60.0


@pytest.mark.parametrize("signals", [Signals(lost=True), Signals(remap_failed=True), Signals(uncorrected_ecc=1)])
def test_a_fault_that_lasts_never_heals(signals: Signals) -> None:
    memory = fallen(signals)
    for now in range(1, 100_000, 500):
        memory, found, again, _ = judge(memory, signals, float(now))
        assert not found.healthy
        assert again is not None


def test_a_fatal_xid_holds_the_card_while_the_driver_asks_for_a_recovery() -> None:
    asking = Signals(xids=(119,), recovery=Recovery.RESET)
    memory = fallen(asking)
    for now in range(30, 3000, 30):
        memory, found, _, _ = judge(memory, asking, float(now))
        assert (found.healthy, found.reason) == (False, "XID119")
    assert until_healthy(memory, FATAL, 3000.0)[1] == 60.0


def test_a_new_fatal_xid_during_the_watch_starts_it_anew() -> None:
    memory = judge(fallen(), FATAL, 10.0).memory
    twice = Signals(xids=(119, 119))
    memory, found, _, _ = judge(memory, twice, 20.0)
    assert found.message.endswith("must be reset, then cleared.")
    assert until_healthy(memory, twice, 30.0)[1] == 60.0


def test_an_application_error_during_the_watch_changes_nothing() -> None:
    memory = fallen()
    verdicts = []
    for now, xids in ((10.0, (119,)), (40.0, (119, 31)), (70.0, (119, 31, 13))):
        memory, found, _, _ = judge(memory, Signals(xids=xids), now)
        verdicts.append(found.healthy)
    assert verdicts == [False, False, True]


def test_a_person_heals_a_card_at_once_if_the_next_probe_agrees() -> None:
    assert judge(fallen(), GOOD, 1.0, cleared=True).verdict.healthy
    found = judge(fallen(Signals(uncorrected_ecc=2)), Signals(uncorrected_ecc=2), 1.0, cleared=True)
    assert (found.verdict.healthy, found.verdict.reason) == (False, "DoubleBitECC")


def test_a_report_that_came_after_the_person_cleared_the_card_counts() -> None:
    assert not judge(fallen(), FATAL, 1.0, cleared=True).verdict.healthy


def test_each_fall_that_follows_soon_doubles_the_wait_up_to_an_hour() -> None:
    memory, now, waits = CardHealth(), 0.0, []
    for _ in range(9):
        memory, waited = until_healthy(fallen(Signals(lost=True), now, memory), GOOD, now + 1)
        now += 1 + waited + 10
        waits.append(waited)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_an_hour_of_work_or_a_person_makes_the_past_forgotten() -> None:
    memory, now = until_healthy(fallen(), FATAL, 1.0)
    worked = fallen(Signals(lost=True), now + 2 * RECOVERY.longest, memory)
    assert until_healthy(worked, GOOD, now + 2 * RECOVERY.longest + 1)[1] == 60.0
    flapping = fallen(Signals(lost=True), now + 10, memory)
    mended = judge(flapping, GOOD, now + 20, cleared=True).memory
    assert mended.falls == 0


def test_heat_has_a_threshold_to_fall_at_and_a_lower_one_to_rise_at() -> None:
    assert judge(CardHealth(), GOOD, 0.0, temperature=RECOVERY.hot - 1).verdict.healthy
    memory, found, _, _ = judge(CardHealth(), GOOD, 0.0, temperature=RECOVERY.hot)
    assert found.reason == "Overheated"
    for now in range(30, 600, 30):
        memory, found, _, _ = judge(memory, GOOD, float(now), temperature=RECOVERY.cool + 1)
        assert found.reason == "Overheated"
    for later in (600.0, 630.0, 660.0):
        memory, found, _, _ = judge(memory, GOOD, later, temperature=RECOVERY.cool)
    assert found.healthy


def test_a_card_that_slows_itself_down_is_too_hot_at_any_temperature() -> None:
    assert judge(CardHealth(), Signals(overheated=True), 0.0, temperature=40).verdict.reason == "Overheated"


def test_a_restart_of_the_agent_does_not_heal_a_card() -> None:
    at = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    start = at.timestamp()
    watched = judge(judge(fallen(), FATAL, start).memory, FATAL, start + 30)
    memory = recalled(written(watched, at))
    found = judge(memory, GOOD, start + 3600)
    assert (found.verdict.healthy, found.verdict.reason) == (False, "XID119")
    assert found.verdict.message == watched.verdict.message
    assert until_healthy(memory, GOOD, start + 3600)[1] == 60.0


def test_a_restart_does_not_forget_that_a_card_came_back_just_now() -> None:
    at = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    back = recalled(written(judge(CardHealth(), GOOD, 0.0), at))
    assert fallen(Signals(lost=True), at.timestamp() + 60, back).falls == 1
    assert fallen(Signals(lost=True), at.timestamp() + 7200, back).falls == 0


def test_a_contained_memory_error_is_forgiven_across_a_clear_and_a_restart() -> None:
    contained = Signals(xids=(63, 94), uncorrected_ecc=1)
    first = judge(CardHealth(), contained, 0.0)
    assert first.verdict.reason == "MemoryErrorContained"
    cleared = judge(first.memory, Signals(uncorrected_ecc=1), 1.0, cleared=True)
    assert cleared.verdict == first.verdict
    restarted = recalled(written(cleared, datetime(2026, 3, 2, tzinfo=UTC)))
    again = judge(restarted, Signals(uncorrected_ecc=1), 2.0)
    assert again.verdict == first.verdict
    assert judge(again.memory, Signals(uncorrected_ecc=2), 3.0).verdict.reason == "DoubleBitECC"


def test_a_contained_error_beside_an_uncontained_one_is_not_forgiven() -> None:
    both = Signals(xids=(94, 95), uncorrected_ecc=2)
    memory = fallen(both)
    for now in range(30, 3000, 30):
        memory, found, _, _ = judge(memory, both, float(now))
        assert not found.healthy


@pytest.mark.parametrize(
    ("known", "reports", "new"),
    [
        ((), (), ()),
        ((79,), (79,), ()),
        ((79,), (79, 31), (31,)),
        ((1, 2, 3), (2, 3, 4), (4,)),
        ((79,), (), ()),
        ((79,), (31,), (31,)),
    ],
)
def test_unseen_reports_are_found_though_a_card_keeps_only_the_latest(
    known: tuple[int, ...], reports: tuple[int, ...], new: tuple[int, ...]
) -> None:
    assert unseen(known, reports) == new


_codes = st.sampled_from([13, 31, 63, 94, 154, 48, 79, 119, 4711])
_conditions = st.builds(
    Signals,
    lost=st.booleans(),
    remap_failed=st.just(False),
    remap_pending=st.booleans(),
    overheated=st.booleans(),
    recovery=st.sampled_from([Recovery.NONE, Recovery.NONE, Recovery.RESET]),
)
_probes = st.lists(
    st.tuples(
        st.one_of(st.just(GOOD), st.just(GOOD), _conditions),
        st.lists(_codes, max_size=2),
        st.sampled_from([0.0, 1.0, 20.0, 30.0, 60.0, 200.0, 5000.0]),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(_probes, st.booleans())
def test_a_card_never_becomes_healthy_without_the_required_good_probes(
    probes: list[tuple[Signals, list[int], float, bool]], restarts: bool
) -> None:
    memory, now, history, clears = CardHealth(), 0.0, list[int](), 0
    was_healthy, run = True, list[float]()
    for index, (state, news, passed, restart) in enumerate(probes):
        now += passed
        history += news
        signals = Signals(
            xids=tuple(history),
            clears=clears,
            lost=state.lost,
            remap_pending=state.remap_pending,
            overheated=state.overheated,
            recovery=state.recovery,
        )
        bad = state.lost or state.overheated or state.recovery is not Recovery.NONE or any(map(is_fault, news))
        run = [] if bad else [*run, now]
        memory, found, _, forget = judge(memory, signals, now)
        assert not (bad and found.healthy)
        if found.healthy and not was_healthy:
            assert len(run) >= RECOVERY.probes
            assert run[-1] - run[0] >= RECOVERY.seconds
            assert forget
            history, clears = [], clears + 1
        elif not found.healthy and was_healthy:
            assert bad
            run = []
        was_healthy = found.healthy
        if restart and restarts and index % 3 == 0:
            at = datetime.fromtimestamp(now, UTC)
            memory = recalled(written(Judgement(memory, found, None, False), at))
            history, run, clears = [], [], 0


@given(st.lists(st.sampled_from(sorted(APPLICATION_XIDS | HARMLESS_XIDS)), max_size=12), st.integers(0, 5))
def test_errors_of_programs_never_fault_a_card(codes: list[int], errors: int) -> None:
    memory = CardHealth()
    for end in range(len(codes) + 1):
        signals = Signals(xids=tuple(codes[:end]), uncorrected_ecc=errors if 94 in codes[:end] else 0)
        memory, found, _, _ = judge(memory, signals, float(end))
        assert found.healthy
