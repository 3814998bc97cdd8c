"""No caller is ever cut off: whatever the timing, who trusts a spread bundle trusts whoever serves."""

from datetime import UTC, datetime, timedelta

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


@settings(max_examples=25, deadline=None)
@given(
    pauses=st.lists(st.sampled_from([timedelta(minutes=1), timedelta(hours=7), DAY, 5 * DAY, 30 * DAY]), max_size=40),
    data=st.data(),
)
def test_callers_with_any_spread_bundle_trust_every_replica(pauses: list[timedelta], data: st.DataObject) -> None:
    """Replicas serve any certificate that was ever stored and has not expired; callers may lag by `settle`."""
    now, state = START, fresh()
    trusted_since = now
    served = [state.serving.certificate]
    bundles = [(state.bundle, now)]
    for pause in pauses:
        now += pause
        for _ in range(data.draw(st.integers(1, 4))):
            step = next_step(state, SUBJECT, trusted_since=trusted_since, now=now, policy=POLICY)
            if step is None:
                assert next_change(state, trusted_since=trusted_since, policy=POLICY) > now
                break
            if step.state.bundle != state.bundle:
                trusted_since = now
                bundles.append((step.state.bundle, now))
            state = step.state
            served.append(state.serving.certificate)
            assert is_sound(state)
        held = [
            bundle
            for number, (bundle, _) in enumerate(bundles)
            if number == len(bundles) - 1 or bundles[number + 1][1] > now - POLICY.settle
        ]
        expired_authorities = all(read(known.certificate).expires_at <= now for known in state.authorities[:-1])
        emergency = len(state.authorities) > 1 and expired_authorities
        for bundle in held if not emergency else held[-1:]:
            for certificate in served:
                if read(certificate).expires_at > now:
                    assert any(signed_by(certificate, authority) for authority in split(bundle))
