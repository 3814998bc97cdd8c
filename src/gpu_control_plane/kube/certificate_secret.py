"""A server's certificates, kept in a Secret that all replicas share and loaded into a live TLS context.

Every write carries the resourceVersion it was decided on, so replicas that race agree on one authority: the loser
reads what the winner wrote. New connections get a new certificate at once; open ones are left alone.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import ClassVar

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.certificate_rotation import (
    CertificateSet,
    RotationPolicy,
    Subject,
    is_consistent,
    new_certificate_set,
    next_rotation,
    next_rotation_at,
)
from gpu_control_plane.kube.certificates import KeyPair, read, split_pem
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.process_events import PERSISTENT_FAILURES, RENEWAL_REMINDER, ProcessEvent
from gpu_control_plane.kube.tls import load_certificate, server_context

Publish = Callable[[bytes], Awaitable[bool]]
"""Brings a bundle to all callers; true when one of them did not have it yet."""

_RESYNC_SECONDS = 600.0
_RETRY = Backoff(first=0.5, most=60.0)

_log = structlog.get_logger(component="kube.certificates")


class Secret(Object, frozen=True, kw_only=True):
    """The part of a Secret that holds certificates."""

    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")

    type: str = "Opaque"
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


class ServingCertificates:
    """Keeps the certificates of one server valid. Run it on every replica, and `wake` it when the Secret changes.

    `tls` is the context to serve with; it has a certificate after the first `sync`.
    """

    def __init__(
        self,
        client: Client,
        secret: Key,
        subject: Subject,
        publish: Publish,
        *,
        policy: RotationPolicy | None = None,
        client_authorities: bytes | None = None,
        registry: CollectorRegistry | None = None,
        events: EventRecorder | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: random.Random | None = None,
    ) -> None:
        self.tls: ssl.SSLContext = server_context(client_authorities)
        self._client = client
        self._secret = secret
        self._subject = subject
        self._publish = publish
        self._policy = policy or RotationPolicy()
        self._now = now
        self._rng = rng or random.Random()
        self._events = events
        self._told_at: datetime | None = None
        self._woken = asyncio.Event()
        self._loaded = asyncio.Event()
        self._held: CertificateSet | None = None
        self._trusted_since = now()
        self._expiry = Gauge(
            "kube_certificate_expires_timestamp_seconds",
            "When the `serving` certificate and the newest `authority` expire.",
            ("certificate",),
            registry=registry or CollectorRegistry(),
        )

    @property
    def bundle(self) -> bytes | None:
        """The authorities callers must trust, as last read; None before the first `sync`."""
        return self._held.bundle if self._held else None

    def problem(self) -> str | None:
        """Why no caller could be served now, for a readiness check; None when all is well."""
        if self._held is None:
            return "there is no serving certificate yet"
        if self._expires_at <= self._now():
            return "the serving certificate has expired"
        return None

    @property
    def _expires_at(self) -> datetime:
        assert self._held is not None  # noqa: S101 - asked of a certificate that is there
        return read(self._held.serving.certificate).expires_at

    async def loaded(self) -> None:
        """Return when there is a certificate to serve."""
        await self._loaded.wait()

    def wake(self) -> None:
        """Look at the Secret now."""
        self._woken.set()

    async def run(self) -> None:
        """Follow the Secret until cancelled. A failure is logged and tried again; what is loaded stays in use."""
        failures = 0
        while True:
            self._woken.clear()
            try:
                due = await self.sync()
                failures, self._told_at = 0, None
                pause = min(max((due - self._now()).total_seconds(), 0.0), _RESYNC_SECONDS)
            except KubeError as error:
                failures += 1
                pause = _RETRY.delay(failures, self._rng)
                _log.warning("certificates not synchronised", secret=str(self._secret), error=str(error))
                self._record(failures, error)
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _record(self, failures: int, error: KubeError) -> None:
        """When it lasts, and once a day from then on: an Event is gone long before the certificate expires."""
        now = self._now()
        recent = self._told_at is not None and now - self._told_at < RENEWAL_REMINDER
        if self._events is None or failures < PERSISTENT_FAILURES or recent:
            return
        self._told_at = now
        held = f" The one in use expires at {self._expires_at:%Y-%m-%d %H:%M} UTC." if self._held else ""
        secret = Secret(metadata=ObjectMeta(name=self._secret.name, namespace=self._secret.namespace))
        note = f"The webhooks' certificates cannot be kept up to date: {error}.{held}"
        self._events.warning(secret, ProcessEvent.CERTIFICATES_NOT_SYNCHRONISED, note, action="Renew")

    async def sync(self) -> datetime:
        """Read, load, publish, and rotate what is due. Returns when the next rotation is due."""
        while True:
            stored = await self._read()
            found = _decoded(stored) if stored else None
            if found is None:
                fresh = new_certificate_set(self._subject, now=self._now(), policy=self._policy)
                await self._store(stored, fresh, "there are no usable certificates")
                continue
            self._load(found)
            unpublished = await self._publish_bundle(found.bundle)
            rotation = next_rotation(
                found, self._subject, trusted_since=self._trusted_since, now=self._now(), policy=self._policy
            )
            if rotation is None and unpublished is not None:
                raise unpublished
            if rotation is None:
                return next_rotation_at(found, trusted_since=self._trusted_since, policy=self._policy)
            await self._store(stored, rotation.certificates, rotation.reason)

    def _load(self, found: CertificateSet) -> None:
        if self._held is None or self._held.serving != found.serving:
            load_certificate(self.tls, found.serving.certificate, found.serving.key, f"Secret {self._secret}")
            self._expiry.labels("serving").set(read(found.serving.certificate).expires_at.timestamp())
        self._expiry.labels("authority").set(read(found.authorities[-1].certificate).expires_at.timestamp())
        if self._held is None or self._held.bundle != found.bundle:
            self._trusted_since = self._now()
        self._held = found
        self._loaded.set()

    async def _publish_bundle(self, bundle: bytes) -> KubeError | None:
        """Publish; when that fails no caller counts as trusting a new authority, and the old one goes on signing."""
        try:
            if await self._publish(bundle):
                self._trusted_since = self._now()
        except KubeError as error:
            self._trusted_since = self._now()
            return error
        return None

    async def _read(self) -> Secret | None:
        try:
            return await self._client.get(Secret, self._secret.name, self._secret.namespace)
        except NotFound:
            return None

    async def _store(self, stored: Secret | None, certificates: CertificateSet, reason: str) -> None:
        """Write, or find that another replica has just written; either way the next read shows what counts."""
        try:
            if stored is None:
                body = {
                    "metadata": {"name": self._secret.name},
                    "type": "kubernetes.io/tls",
                    "data": _encoded(certificates),
                }
                await self._client.create(Secret, body, self._secret.namespace)
            else:
                await self._client.patch(
                    Secret,
                    self._secret.name,
                    {"data": _encoded(certificates)},
                    resource_version=stored.metadata.resource_version,
                    namespace=self._secret.namespace,
                )
        except (AlreadyExists, Conflict):
            return
        _log.info("certificates changed", secret=str(self._secret), reason=reason)


def _encoded(certificates: CertificateSet) -> dict[str, bytes]:
    return {
        "ca.crt": certificates.bundle,
        "ca.key": b"".join(authority.key for authority in certificates.authorities),
        "tls.crt": certificates.serving.certificate,
        "tls.key": certificates.serving.key,
        "previous.crt": b"".join(certificates.previous),
    }


def _decoded(secret: Secret) -> CertificateSet | None:
    """What a Secret says, or None when it holds nothing that can be served."""
    data = secret.data
    certificates, keys = split_pem(data.get("ca.crt", b"")), split_pem(data.get("ca.key", b""))
    if len(certificates) != len(keys):
        return None
    found = CertificateSet(
        authorities=tuple(KeyPair(*pair) for pair in zip(certificates, keys, strict=True)),
        serving=KeyPair(data.get("tls.crt", b""), data.get("tls.key", b"")),
        previous=tuple(split_pem(data.get("previous.crt", b""))),
    )
    return found if is_consistent(found) else None
