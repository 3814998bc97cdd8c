"""When a server's own certificate authority makes which certificate. Pure decisions.

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
    canonical_name,
    issue,
    key_matches,
    new_authority,
    read,
    signed_by,
)

_NEVER = datetime.max.replace(tzinfo=UTC)


class RotationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long certificates live, with which share of life left they are renewed, how long a bundle takes to spread."""

    authority_life: timedelta = timedelta(days=730)
    serving_life: timedelta = timedelta(days=90)
    renew_below: float = 1 / 3
    propagation: timedelta = timedelta(minutes=10)


class Subject(msgspec.Struct, frozen=True):
    """The name of the authority, and the DNS names and addresses of the server."""

    authority: str
    names: tuple[str, ...]


class CertificateSet(msgspec.Struct, frozen=True, kw_only=True):
    """Authorities, oldest first; the certificate that is served; certificates that some replica may still serve."""

    authorities: tuple[KeyPair, ...]
    serving: KeyPair
    previous: tuple[bytes, ...] = ()

    @property
    def bundle(self) -> bytes:
        """What callers must trust, PEM."""
        return b"".join(authority.certificate for authority in self.authorities)


class Rotation(msgspec.Struct, frozen=True):
    """The certificates to store, and the reason for the log."""

    certificates: CertificateSet
    reason: str


def new_certificate_set(subject: Subject, *, now: datetime, policy: RotationPolicy) -> CertificateSet:
    """A new authority and its first certificate."""
    authority = new_authority(subject.authority, now=now, valid_for=policy.authority_life)
    serving = issue(authority, subject.names, now=now, valid_for=policy.serving_life)
    return CertificateSet(authorities=(authority,), serving=serving)


def is_consistent(current: CertificateSet) -> bool:
    """Whether every key fits its certificate and the serving one comes from an authority of the bundle."""
    return (
        bool(current.authorities)
        and all(key_matches(pair) for pair in (*current.authorities, current.serving))
        and any(_made_by(authority, current.serving.certificate) for authority in current.authorities)
    )


def next_rotation(
    current: CertificateSet, subject: Subject, *, trusted_since: datetime, now: datetime, policy: RotationPolicy
) -> Rotation | None:
    """The one thing to change now, or None when all is well.

    `trusted_since` is when their bundle has reached all callers.
    """
    newest = current.authorities[-1]
    if needs_rotation(newest.certificate, now=now, policy=policy):
        successor = new_authority(subject.authority, now=now, valid_for=policy.authority_life)
        return Rotation(_with_authorities(current, (*current.authorities, successor)), "the authority nears its end")
    if reason := _serving_fault(current, subject, trusted_since=trusted_since, now=now, policy=policy):
        signer = _signer(current, trusted_since=trusted_since, now=now, policy=policy)
        return Rotation(_reissued(current, signer, subject, now=now, policy=policy), reason)
    kept = tuple(authority for authority in current.authorities if now < _retires_at(current, authority))
    if kept != current.authorities:
        return Rotation(_with_authorities(current, kept), "nothing that the old authority signed is valid any more")
    return None


def needs_rotation(certificate: bytes, *, now: datetime, policy: RotationPolicy) -> bool:
    """Whether so little of a certificate's life is left that its successor should be made."""
    return now >= _renewed_at(certificate, policy)


def next_rotation_at(current: CertificateSet, *, trusted_since: datetime, policy: RotationPolicy) -> datetime:
    """When `next_rotation` has something to do again, unless another replica changes something."""
    newest = current.authorities[-1]
    times = [_renewed_at(current.serving.certificate, policy), _renewed_at(newest.certificate, policy)]
    times += [_retires_at(current, authority) for authority in current.authorities]
    if not _made_by(newest, current.serving.certificate):
        times.append(trusted_since + policy.propagation)
    return min(times)


def _serving_fault(
    current: CertificateSet, subject: Subject, *, trusted_since: datetime, now: datetime, policy: RotationPolicy
) -> str | None:
    if read(current.serving.certificate).names != {canonical_name(name) for name in subject.names}:
        return "the server has other names"
    if needs_rotation(current.serving.certificate, now=now, policy=policy):
        return "the serving certificate nears its end"
    if now >= trusted_since + policy.propagation and not _made_by(current.authorities[-1], current.serving.certificate):
        return "the new authority is trusted by all callers"
    return None


def _signer(current: CertificateSet, *, trusted_since: datetime, now: datetime, policy: RotationPolicy) -> KeyPair:
    """The newest authority when callers trust it; until then the one that signed before, if it can."""
    newest = current.authorities[-1]
    if now >= trusted_since + policy.propagation:
        return newest
    signer = next(known for known in current.authorities if _made_by(known, current.serving.certificate))
    return signer if read(signer.certificate).expires_at > now + timedelta(seconds=1) else newest


def _reissued(
    current: CertificateSet, signer: KeyPair, subject: Subject, *, now: datetime, policy: RotationPolicy
) -> CertificateSet:
    replaced = (*current.previous, current.serving.certificate)
    return CertificateSet(
        authorities=current.authorities,
        serving=issue(signer, subject.names, now=now, valid_for=policy.serving_life),
        previous=tuple(certificate for certificate in replaced if now < read(certificate).expires_at),
    )


def _with_authorities(current: CertificateSet, authorities: tuple[KeyPair, ...]) -> CertificateSet:
    return CertificateSet(authorities=authorities, serving=current.serving, previous=current.previous)


def _renewed_at(certificate: bytes, policy: RotationPolicy) -> datetime:
    facts = read(certificate)
    return facts.expires_at - (facts.expires_at - facts.issued_at) * policy.renew_below


def _retires_at(current: CertificateSet, authority: KeyPair) -> datetime:
    if authority is current.authorities[-1] or _made_by(authority, current.serving.certificate):
        return _NEVER
    signed = [read(old).expires_at for old in current.previous if _made_by(authority, old)]
    return max(signed, default=read(authority.certificate).issued_at)


def _made_by(authority: KeyPair, certificate: bytes) -> bool:
    return signed_by(certificate, authority.certificate)
