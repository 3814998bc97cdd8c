"""When which certificate is made: the decisions behind a server's own certificate authority.

No call may fail while certificates change, so an authority is trusted before it signs, and stays trusted until the
last certificate it signed has expired:

1. an authority at two thirds of its life gets a successor, which joins the bundle but signs nothing yet;
2. when callers have had the new bundle for a while, the serving certificate comes from the successor;
3. when nothing that the old authority signed can still be valid, it leaves the bundle.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from gpu_control_plane.kube.certificates import (
    KeyPair,
    belongs_together,
    canonical_name,
    issue,
    new_authority,
    read,
    signed_by,
)

_NEVER = datetime.max.replace(tzinfo=UTC)


class RotationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long certificates live, at which part of life left they are renewed, how long a bundle takes to spread."""

    authority_life: timedelta = timedelta(days=730)
    serving_life: timedelta = timedelta(days=90)
    renew_below: float = 1 / 3
    settle: timedelta = timedelta(minutes=10)


class Subject(msgspec.Struct, frozen=True):
    """Whom certificates are for: what the authority is called, and the server's DNS names and addresses."""

    authority: str
    names: tuple[str, ...]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Authorities, oldest first; the certificate that is served; certificates that some replica may still serve."""

    authorities: tuple[KeyPair, ...]
    serving: KeyPair
    previous: tuple[bytes, ...] = ()

    @property
    def bundle(self) -> bytes:
        """What callers must trust, PEM."""
        return b"".join(authority.certificate for authority in self.authorities)


class Change(msgspec.Struct, frozen=True):
    """What to store, and the reason for the log."""

    state: State
    reason: str


def first_state(subject: Subject, *, now: datetime, policy: RotationPolicy) -> State:
    """A new authority and its first certificate."""
    authority = new_authority(subject.authority, now=now, valid_for=policy.authority_life)
    serving = issue(authority, subject.names, now=now, valid_for=policy.serving_life)
    return State(authorities=(authority,), serving=serving)


def is_sound(state: State) -> bool:
    """Whether every key fits its certificate and the serving one comes from an authority of the bundle."""
    return (
        bool(state.authorities)
        and all(belongs_together(pair) for pair in (*state.authorities, state.serving))
        and any(_made_by(authority, state.serving.certificate) for authority in state.authorities)
    )


def next_step(
    state: State, subject: Subject, *, trusted_since: datetime, now: datetime, policy: RotationPolicy
) -> Change | None:
    """The one thing to change now, or None when all is well.

    `trusted_since` is when the state's bundle reached everybody who calls.
    """
    newest = state.authorities[-1]
    if needs_rotation(newest.certificate, now=now, policy=policy):
        successor = new_authority(subject.authority, now=now, valid_for=policy.authority_life)
        return Change(_with_authorities(state, (*state.authorities, successor)), "the authority nears its end")
    if reason := _serving_fault(state, subject, trusted_since=trusted_since, now=now, policy=policy):
        signer = _signer(state, trusted_since=trusted_since, now=now, policy=policy)
        return Change(_reissued(state, signer, subject, now=now, policy=policy), reason)
    kept = tuple(authority for authority in state.authorities if now < _retires_at(state, authority))
    if kept != state.authorities:
        return Change(_with_authorities(state, kept), "nothing that the old authority signed is valid any more")
    return None


def needs_rotation(certificate: bytes, *, now: datetime, policy: RotationPolicy) -> bool:
    """Whether so little of a certificate's life is left that its successor should be made."""
    return now >= _renewed_at(certificate, policy)


def next_change(state: State, *, trusted_since: datetime, policy: RotationPolicy) -> datetime:
    """When `next_step` has something to do again, provided that nobody else changes anything."""
    newest = state.authorities[-1]
    times = [_renewed_at(state.serving.certificate, policy), _renewed_at(newest.certificate, policy)]
    times += [_retires_at(state, authority) for authority in state.authorities]
    if not _made_by(newest, state.serving.certificate):
        times.append(trusted_since + policy.settle)
    return min(times)


def _serving_fault(
    state: State, subject: Subject, *, trusted_since: datetime, now: datetime, policy: RotationPolicy
) -> str | None:
    if read(state.serving.certificate).names != {canonical_name(name) for name in subject.names}:
        return "the server has other names"
    if needs_rotation(state.serving.certificate, now=now, policy=policy):
        return "the serving certificate nears its end"
    if now >= trusted_since + policy.settle and not _made_by(state.authorities[-1], state.serving.certificate):
        return "the new authority is trusted by all callers"
    return None


def _signer(state: State, *, trusted_since: datetime, now: datetime, policy: RotationPolicy) -> KeyPair:
    """The newest authority when callers trust it; until then the one that signed before, if it can."""
    newest = state.authorities[-1]
    if now >= trusted_since + policy.settle:
        return newest
    current = next(known for known in state.authorities if _made_by(known, state.serving.certificate))
    return current if read(current.certificate).expires_at > now + timedelta(seconds=1) else newest


def _reissued(state: State, signer: KeyPair, subject: Subject, *, now: datetime, policy: RotationPolicy) -> State:
    replaced = (*state.previous, state.serving.certificate)
    return State(
        authorities=state.authorities,
        serving=issue(signer, subject.names, now=now, valid_for=policy.serving_life),
        previous=tuple(certificate for certificate in replaced if now < read(certificate).expires_at),
    )


def _with_authorities(state: State, authorities: tuple[KeyPair, ...]) -> State:
    return State(authorities=authorities, serving=state.serving, previous=state.previous)


def _renewed_at(certificate: bytes, policy: RotationPolicy) -> datetime:
    facts = read(certificate)
    return facts.expires_at - (facts.expires_at - facts.issued_at) * policy.renew_below


def _retires_at(state: State, authority: KeyPair) -> datetime:
    if authority is state.authorities[-1] or _made_by(authority, state.serving.certificate):
        return _NEVER
    signed = [read(old).expires_at for old in state.previous if _made_by(authority, old)]
    return max(signed, default=read(authority.certificate).issued_at)


def _made_by(authority: KeyPair, certificate: bytes) -> bool:
    return signed_by(certificate, authority.certificate)
