"""When which certificate is made: the decision behind a webhook server's own certificate authority.

No call may fail while certificates change, so an authority is trusted before it signs, and stays trusted until the
last certificate it signed has expired:

1. an authority at two thirds of its life gets a successor, which joins the bundle but signs nothing yet;
2. after `settle`, when whoever calls us has the new bundle, the serving certificate comes from the successor;
3. when nothing the old authority signed can still be valid, it leaves the bundle.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.kube.certificates import KeyPair, belongs_together, issue, new_authority, read, signed_by


class RotationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long certificates live. An authority should outlive a serving certificate several times."""

    authority_life: timedelta = timedelta(days=730)
    serving_life: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(minutes=10)
    renew_below: float = 1 / 3


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All there is: the authorities, oldest first, and the certificate that is served."""

    authorities: tuple[KeyPair, ...]
    serving: KeyPair

    @property
    def bundle(self) -> bytes:
        """What callers must trust, PEM."""
        return b"".join(authority.certificate for authority in self.authorities)


class Identity(msgspec.Struct, frozen=True):
    """Whom the certificates are for: a name for the authority, DNS names and addresses for the server."""

    authority: str
    names: tuple[str, ...]


def first_state(identity: Identity, *, now: datetime, policy: RotationPolicy) -> State:
    """A new authority and its first certificate: nobody trusts an older one yet."""
    authority = new_authority(identity.authority, now=now, valid_for=policy.authority_life)
    return State(
        authorities=(authority,),
        serving=issue(authority, identity.names, now=now, valid_for=policy.serving_life),
    )


def advance(state: State, identity: Identity, *, now: datetime, policy: RotationPolicy) -> tuple[State, str | None]:
    """The state that should be stored now, and why it changed; the same state and None when all is well.

    Changes one thing at a time: call it until nothing changes.
    """
    if not is_sound(state):
        return first_state(identity, now=now, policy=policy), "the stored certificates do not fit together"
    authorities, newest = state.authorities, state.authorities[-1]
    if needs_rotation(newest.certificate, now=now, policy=policy):
        successor = new_authority(identity.authority, now=now, valid_for=policy.authority_life)
        return _with(state, authorities=(*authorities, successor)), "the authority nears its end"
    if reason := _serving_fault(state, identity, now=now, policy=policy):
        signer = _signer(state, now=now, policy=policy)
        serving = issue(signer, identity.names, now=now, valid_for=policy.serving_life)
        return _with(state, serving=serving), reason
    kept = tuple(authority for authority in authorities if now < _retires_at(state, authority, policy))
    if kept != authorities:
        return _with(state, authorities=kept), "nothing signed by the old authority is valid any more"
    return state, None


def needs_rotation(certificate: bytes, *, now: datetime, policy: RotationPolicy) -> bool:
    """Whether so little of a certificate's life is left that its successor should be made."""
    return read(certificate).remaining(now) < policy.renew_below


def next_change(state: State, *, policy: RotationPolicy) -> datetime:
    """When `advance` will next have something to do, provided that nobody else changes anything."""
    newest = state.authorities[-1]
    times = [_renewed_at(state.serving, policy), _renewed_at(newest, policy)]
    if not _issued_by(state.serving, newest):
        times.append(read(newest.certificate).issued_at + policy.settle)
    times += [_retires_at(state, authority, policy) for authority in state.authorities[:-1]]
    return min(times)


def is_sound(state: State) -> bool:
    """Whether every key fits its certificate and the serving one comes from an authority of the bundle."""
    pairs = (*state.authorities, state.serving)
    return (
        bool(state.authorities)
        and all(belongs_together(pair) for pair in pairs)
        and any(signed_by(state.serving.certificate, authority.certificate) for authority in state.authorities)
    )


def _serving_fault(state: State, identity: Identity, *, now: datetime, policy: RotationPolicy) -> str | None:
    facts = read(state.serving.certificate)
    if facts.names != set(identity.names):
        return "the server has other names now"
    if facts.remaining(now) < policy.renew_below and not _as_long_as_possible(state, now, policy):
        return "the serving certificate nears its end"
    newest = state.authorities[-1]
    if not _issued_by(state.serving, newest) and _settled(newest, now, policy):
        return "the new authority is trusted everywhere"
    return None
