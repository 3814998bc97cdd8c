"""No call ever fails: whatever the timing, a caller with any published bundle trusts the certificate of any replica."""

import functools
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.kube.certificate_rotation import (
    CertificateSet,
    RotationPolicy,
    Subject,
    is_consistent,
    needs_rotation,
    new_certificate_set,
    next_rotation,
    next_rotation_at,
)
from gpu_control_plane.kube.certificates import KeyPair, read, signed_by, split_pem

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SUBJECT = Subject("webhooks", ("svc.ns.svc",))
POLICY = RotationPolicy(authority_life=90 * DAY, serving_life=12 * DAY, propagation=timedelta(hours=6))


def fresh() -> CertificateSet:
    return new_certificate_set(SUBJECT, now=START, policy=POLICY)


def settled(
    held: CertificateSet, now: datetime, *, trusted_since: datetime | None = None, subject: Subject = SUBJECT
) -> tuple[CertificateSet, list[str]]:
    """Take steps until there are none."""
    reasons: list[str] = []
    while step := next_rotation(held, subject, trusted_since=trusted_since or START, now=now, policy=POLICY):
        held = step.certificates
        reasons.append(step.reason)
        assert len(reasons) < 10
    return held, reasons


def serving_authority(held: CertificateSet) -> int:
    """Which of the authorities signed what is served."""
    return next(
        number
        for number, authority in enumerate(held.authorities)
        if signed_by(held.serving.certificate, authority.certificate)
    )


def test_a_fresh_state_needs_nothing() -> None:
    held = fresh()
    assert settled(held, START) == (held, [])


@pytest.mark.parametrize(("days", "due"), [(0, False), (7, False), (8, True), (12, True), (20, True)])
def test_a_certificate_is_renewed_with_a_third_of_its_life_left(days: int, due: bool) -> None:
    assert needs_rotation(fresh().serving.certificate, now=START + days * DAY, policy=POLICY) == due


def test_an_old_serving_certificate_is_replaced() -> None:
    held = fresh()
    renewed, reasons = settled(held, START + 9 * DAY)
    assert reasons == ["the serving certificate nears its end"]
    assert renewed.authorities == held.authorities
    assert renewed.previous == (held.serving.certificate,)


def test_other_names_need_another_certificate() -> None:
    renewed, reasons = settled(fresh(), START, subject=Subject("webhooks", ("other.ns.svc", "0:0::1")))
    assert reasons == ["the server has other names"]
    assert read(renewed.serving.certificate).names == {"other.ns.svc", "::1"}


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    now = START + 61 * DAY
    held, reasons = settled(fresh(), now, trusted_since=now)
    assert reasons[0] == "the authority nears its end"
    assert len(held.authorities) == 2
    assert serving_authority(held) == 0


def test_a_new_authority_signs_once_its_bundle_has_spread() -> None:
    now = START + 61 * DAY
    staged, _ = settled(fresh(), now, trusted_since=now)
    held, reasons = settled(staged, now + POLICY.propagation, trusted_since=now)
    assert reasons == ["the new authority is trusted by all callers"]
    assert serving_authority(held) == 1
    assert len(held.authorities) == 2


def test_an_old_authority_is_trusted_until_what_it_signed_has_expired() -> None:
    now = START + 61 * DAY
    staged, _ = settled(fresh(), now, trusted_since=now)
    held, _ = settled(staged, now + POLICY.propagation, trusted_since=now)
    last = max(read(certificate).expires_at for certificate in held.previous)
    early, _ = settled(held, last - timedelta(seconds=1))
    late, reasons = settled(held, last)
    assert len(early.authorities) == 2
    assert len(late.authorities) == 1
    assert "nothing that the old authority signed is valid any more" in reasons


def test_after_a_long_sleep_everything_is_new_at_once() -> None:
    now = START + 1000 * DAY
    held, _ = settled(fresh(), now, trusted_since=now)
    assert len(held.authorities) == 1
    assert not needs_rotation(held.serving.certificate, now=now, policy=POLICY)
    assert not needs_rotation(held.authorities[0].certificate, now=now, policy=POLICY)


def test_a_state_that_does_not_fit_together_is_found() -> None:
    held, other = fresh(), fresh()
    assert is_consistent(held)
    assert not is_consistent(CertificateSet(authorities=(), serving=held.serving))
    assert not is_consistent(CertificateSet(authorities=other.authorities, serving=held.serving))
    mixed = KeyPair(held.serving.certificate, other.serving.key)
    assert not is_consistent(CertificateSet(authorities=held.authorities, serving=mixed))


@functools.cache
def _signed_by(certificate: bytes, authority: bytes) -> bool:
    """Checked once for each pair: a year has many days with the same certificates."""
    return signed_by(certificate, authority)


class RotationModel:
    """Replicas that serve any certificate ever stored and not expired; callers whose bundle lags by `propagation`."""

    def __init__(self, policy: RotationPolicy = POLICY) -> None:
        self.now = START
        self.policy = policy
        self.current = new_certificate_set(SUBJECT, now=START, policy=policy)
        self.trusted_since = START
        self.served = [self.current.serving.certificate]
        self.bundles = [(self.current.bundle, START)]

    def live(self, pause: timedelta, steps: int) -> None:
        """Let time pass, take at most so many steps, and check that every caller trusts every replica."""
        self.now += pause
        for _ in range(steps):
            step = next_rotation(
                self.current, SUBJECT, trusted_since=self.trusted_since, now=self.now, policy=self.policy
            )
            if step is None:
                assert next_rotation_at(self.current, trusted_since=self.trusted_since, policy=self.policy) > self.now
                break
            if step.certificates.bundle != self.current.bundle:
                self.trusted_since = self.now
                self.bundles.append((step.certificates.bundle, self.now))
            self.current = step.certificates
            self.served.append(self.current.serving.certificate)
            assert is_consistent(self.current)
        self.served = [certificate for certificate in self.served if read(certificate).expires_at > self.now]
        for bundle in self._held_by_callers():
            for certificate in self.served:
                assert any(_signed_by(certificate, authority) for authority in split_pem(bundle)), self.now

    def _held_by_callers(self) -> list[bytes]:
        older = self.current.authorities[:-1]
        if older and all(read(known.certificate).expires_at <= self.now for known in older):
            # Everything expired without a renewal: no authority is left that callers could have trusted.
            return [self.current.bundle]
        replaced = zip(self.bundles, self.bundles[1:], strict=False)
        lagging = [bundle for (bundle, _), (_, at) in replaced if at > self.now - self.policy.propagation]
        return [*lagging, self.current.bundle]


@pytest.mark.parametrize("serving_days", [7, 12, 14, 20])
def test_in_a_year_day_by_day_no_call_fails(serving_days: int) -> None:
    model = RotationModel(msgspec.structs.replace(POLICY, serving_life=serving_days * DAY))
    for _ in range(365):
        model.live(DAY, steps=10)
    assert len(model.bundles) > 8, "several generations of authorities came and went"


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
    model = RotationModel()
    for pause, steps in days:
        model.live(pause, steps)
