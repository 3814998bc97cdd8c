"""No caller is ever cut off: whatever the timing, who trusts a spread bundle trusts whoever serves."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.kube.certificate_rotation import (
    RotationPolicy,
    State,
    Subject,
    first_state,
    is_sound,
    needs_rotation,
    next_change,
    next_step,
)
from gpu_control_plane.kube.certificates import KeyPair, read, signed_by, split

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SUBJECT = Subject("webhooks", ("svc.ns.svc",))
POLICY = RotationPolicy(authority_life=90 * DAY, serving_life=12 * DAY, settle=timedelta(hours=6))


def fresh() -> State:
    return first_state(SUBJECT, now=START, policy=POLICY)


def settled(
    state: State, now: datetime, *, trusted_since: datetime | None = None, subject: Subject = SUBJECT
) -> tuple[State, list[str]]:
    """Take steps until there are none."""
    reasons: list[str] = []
    while step := next_step(state, subject, trusted_since=trusted_since or START, now=now, policy=POLICY):
        state = step.state
        reasons.append(step.reason)
        assert len(reasons) < 10
    return state, reasons


def serving_authority(state: State) -> int:
    """Which of the authorities signed what is served."""
    return next(
        number
        for number, authority in enumerate(state.authorities)
        if signed_by(state.serving.certificate, authority.certificate)
    )


def test_a_fresh_state_needs_nothing() -> None:
    state = fresh()
    assert settled(state, START) == (state, [])


@pytest.mark.parametrize(("days", "due"), [(0, False), (7, False), (8, True), (12, True), (20, True)])
def test_a_certificate_is_renewed_with_a_third_of_its_life_left(days: int, due: bool) -> None:
    assert needs_rotation(fresh().serving.certificate, now=START + days * DAY, policy=POLICY) == due


def test_an_old_serving_certificate_is_replaced() -> None:
    state = fresh()
    renewed, reasons = settled(state, START + 9 * DAY)
    assert reasons == ["the serving certificate nears its end"]
    assert renewed.authorities == state.authorities
    assert renewed.previous == (state.serving.certificate,)


def test_other_names_need_another_certificate() -> None:
    renewed, reasons = settled(fresh(), START, subject=Subject("webhooks", ("other.ns.svc", "0:0::1")))
    assert reasons == ["the server has other names"]
    assert read(renewed.serving.certificate).names == {"other.ns.svc", "::1"}


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    now = START + 61 * DAY
    state, reasons = settled(fresh(), now, trusted_since=now)
    assert reasons[0] == "the authority nears its end"
    assert len(state.authorities) == 2
    assert serving_authority(state) == 0


def test_a_new_authority_signs_once_its_bundle_has_spread() -> None:
    now = START + 61 * DAY
    staged, _ = settled(fresh(), now, trusted_since=now)
    state, reasons = settled(staged, now + POLICY.settle, trusted_since=now)
    assert reasons == ["the new authority is trusted by all callers"]
    assert serving_authority(state) == 1
    assert len(state.authorities) == 2


def test_an_old_authority_is_trusted_until_what_it_signed_has_expired() -> None:
    now = START + 61 * DAY
    staged, _ = settled(fresh(), now, trusted_since=now)
    state, _ = settled(staged, now + POLICY.settle, trusted_since=now)
    last = max(read(certificate).expires_at for certificate in state.previous)
    early, _ = settled(state, last - timedelta(seconds=1))
    late, reasons = settled(state, last)
    assert len(early.authorities) == 2
    assert len(late.authorities) == 1
    assert "nothing that the old authority signed is valid any more" in reasons


def test_after_a_long_sleep_everything_is_new_at_once() -> None:
    now = START + 1000 * DAY
    state, _ = settled(fresh(), now, trusted_since=now)
    assert len(state.authorities) == 1
    assert not needs_rotation(state.serving.certificate, now=now, policy=POLICY)
    assert not needs_rotation(state.authorities[0].certificate, now=now, policy=POLICY)


def test_a_state_that_does_not_fit_together_is_found() -> None:
    state, other = fresh(), fresh()
    assert is_sound(state)
    assert not is_sound(State(authorities=(), serving=state.serving))
    assert not is_sound(State(authorities=other.authorities, serving=state.serving))
    mixed = KeyPair(state.serving.certificate, other.serving.key)
    assert not is_sound(State(authorities=state.authorities, serving=mixed))


class World:
    """Replicas that serve any certificate ever stored and not expired; callers whose bundle lags by `settle`."""

    def __init__(self, policy: RotationPolicy = POLICY) -> None:
        self.now = START
        self.policy = policy
        self.state = first_state(SUBJECT, now=START, policy=policy)
        self.trusted_since = START
        self.served = [self.state.serving.certificate]
        self.bundles = [(self.state.bundle, START)]

    def live(self, pause: timedelta, steps: int) -> None:
        """Let time pass, take at most so many steps, and see that nobody is cut off."""
        self.now += pause
        for _ in range(steps):
            step = next_step(self.state, SUBJECT, trusted_since=self.trusted_since, now=self.now, policy=self.policy)
            if step is None:
                assert next_change(self.state, trusted_since=self.trusted_since, policy=self.policy) > self.now
                break
            if step.state.bundle != self.state.bundle:
                self.trusted_since = self.now
                self.bundles.append((step.state.bundle, self.now))
            self.state = step.state
            self.served.append(self.state.serving.certificate)
            assert is_sound(self.state)
        self.served = [certificate for certificate in self.served if read(certificate).expires_at > self.now]
        for bundle in self._held_by_callers():
            for certificate in self.served:
                assert any(signed_by(certificate, authority) for authority in split(bundle)), self.now

    def _held_by_callers(self) -> list[bytes]:
        older = self.state.authorities[:-1]
        if older and all(read(known.certificate).expires_at <= self.now for known in older):
            # Everything expired while nobody renewed: there is nothing left that callers could have trusted.
            return [self.state.bundle]
        replaced = zip(self.bundles, self.bundles[1:], strict=False)
        lagging = [bundle for (bundle, _), (_, at) in replaced if at > self.now - self.policy.settle]
        return [*lagging, self.state.bundle]


@pytest.mark.parametrize("serving_days", [7, 12, 14, 20])
def test_a_year_day_by_day_cuts_nobody_off(serving_days: int) -> None:
    world = World(msgspec.structs.replace(POLICY, serving_life=serving_days * DAY))
    for _ in range(365):
        world.live(DAY, steps=10)
    assert len(world.bundles) > 8, "several generations of authorities came and went"


@settings(max_examples=25, deadline=None)
@given(
    days=st.lists(
        st.tuples(
            st.sampled_from([timedelta(minutes=1), timedelta(hours=7), DAY, 5 * DAY, 30 * DAY]), st.integers(1, 4)
        ),
        max_size=40,
    )
)
def test_callers_with_any_spread_bundle_trust_every_replica(days: list[tuple[timedelta, int]]) -> None:
    world = World()
    for pause, steps in days:
        world.live(pause, steps)
