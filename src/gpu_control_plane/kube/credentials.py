"""The credentials for the API server, always fresh, and fetched by one request at a time.

A `CredentialSource` fetches them; `Credentials` decides when to do so again: when they are due, when the API server
has rejected them, and not at once when fetching failed or did not help.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from gpu_control_plane.kube.errors import ConfigError, CredentialsError
from gpu_control_plane.kube.logs import get_logger
from gpu_control_plane.kube.tls import ClientCertificate, Trust, client_context

REREAD_AFTER_SECONDS = 30.0
"""Seconds after which files are read again; a kubelet renews a token long before it expires."""

_RETRY_AFTER_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 60.0
_REJECTIONS_RESET_SECONDS = 60.0

_log = get_logger("kube.credentials")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown to the API server."""

    authorization: str | None = None
    certificate: ClientCertificate | None = None


class FetchedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """An identity with the times (in seconds since the epoch) to fetch it again and from which it is void."""

    identity: Identity
    renew_at: float = math.inf
    expires_at: float = math.inf


class CredentialSource(Protocol):
    """Where credentials come from. Raises `CredentialsError`. Calls never overlap."""

    async def fetch(self) -> FetchedCredentials: ...


class Access(msgspec.Struct, frozen=True, eq=False):
    """What a request needs to be let in.

    `headers` may hold a name twice (one `Impersonate-Group` per group): copy it as a multidict, never by
    `{**headers}`. `ssl` goes to aiohttp as it is, and stays the same object while certificates stay the same,
    so that connections are kept.
    """

    headers: CIMultiDictProxy[str]
    ssl: ssl.SSLContext | bool


class AccessMaker:
    """Turns an identity into headers and a TLS context, the same context while certificates are the same."""

    def __init__(
        self,
        trust: Trust | None,
        *,
        authority_file: Path | None = None,
        headers: CIMultiDict[str] | None = None,
    ) -> None:
        self._trust = trust
        self._authority_file = authority_file
        self._headers = headers if headers is not None else CIMultiDict()
        self._made_from: tuple[bytes | None, ClientCertificate | None] | None = None
        self._context: ssl.SSLContext | bool = True

    def make(self, identity: Identity) -> Access:
        """Reads files and may take milliseconds: call it in a thread."""
        headers = self._headers.copy()
        if identity.authorization is not None:
            headers["Authorization"] = identity.authorization
        if self._trust is not None:
            authorities = self._read_authorities(self._trust)
            if self._made_from != (authorities, identity.certificate):
                trust = msgspec.structs.replace(self._trust, authorities=authorities)
                self._context = client_context(trust, identity.certificate)
                self._made_from = (authorities, identity.certificate)
        return Access(CIMultiDictProxy(headers), self._context)

    def without_identity(self) -> "AccessMaker":
        """For others at the same server: it trusts the same, and adds no headers and no certificate of ours."""
        return AccessMaker(self._trust, authority_file=self._authority_file)

    def _read_authorities(self, trust: Trust) -> bytes | None:
        if self._authority_file is None:
            return trust.authorities
        return read_file(self._authority_file, "certificate authority")


class Credentials:
    """The current access of a source. Belongs to one event loop.

    `first` is what a source gave while the configuration was loaded, if it was asked then.
    """

    def __init__(
        self,
        source: CredentialSource,
        maker: AccessMaker,
        *,
        now: Callable[[], float] = time.time,
        first: tuple[FetchedCredentials, Access] | None = None,
    ) -> None:
        self._source = source
        self._maker = maker
        self._now = now
        self._fetched: FetchedCredentials | None = first[0] if first else None
        self._access: Access | None = first[1] if first else None
        self._fetched_at = now()
        self._rejected = False
        self._rejections = 0
        self._not_before = -math.inf
        self._failure: str | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> Access:
        """The access to use now. Without a reason to fetch another one this costs a few comparisons.

        While one request fetches new credentials, the others go on with the old ones as long as these are valid.
        """
        if self._access is not None and (not self._due() or self._kept_while_waiting()):
            return self._access
        async with self._lock:
            if self._due() and not self._waiting():
                await self._fetch()
            if self._access is None or (self._failure is not None and not self._usable()):
                raise CredentialsError(self._failure or "There are no credentials.")
            return self._access

    def rejected(self, access: Access) -> None:
        """The server answered 401: fetch other credentials next time, unless that has happened since.

        When those are refused too, they are fetched less and less often, down to once a minute.
        """
        if self._rejected or access is not self._access:
            return
        self._rejected = True
        self._rejections = 1 if self._now() - self._fetched_at > _REJECTIONS_RESET_SECONDS else self._rejections + 1
        wait = 0.0 if self._rejections == 1 else min(2.0 ** (self._rejections - 1), _LONGEST_WAIT_SECONDS)
        self._not_before = max(self._not_before, self._fetched_at + wait)

    def _due(self) -> bool:
        if self._fetched is None or self._rejected:
            return True
        now = self._now()
        clock_was_set_back = now < self._fetched_at and self._fetched.renew_at < math.inf
        return now >= self._fetched.renew_at or clock_was_set_back

    def _waiting(self) -> bool:
        return 0 < self._not_before - self._now() <= _LONGEST_WAIT_SECONDS

    def _usable(self) -> bool:
        return self._fetched is not None and not self._rejected and self._now() < self._fetched.expires_at

    def _kept_while_waiting(self) -> bool:
        if self._usable():
            return self._waiting() or self._lock.locked()
        return self._waiting() and self._failure is None

    async def _fetch(self) -> None:
        try:
            fetched = await self._source.fetch()
            access = await asyncio.to_thread(self._maker.make, fetched.identity)
        except (CredentialsError, ConfigError) as error:
            self._failure = str(error)
            self._not_before = self._now() + _RETRY_AFTER_SECONDS
            if self._usable():
                _log.warning("credentials not renewed, the old ones are still valid", error=self._failure)
            return
        if self._access is None or access.ssl is not self._access.ssl or access.headers != self._access.headers:
            self._access = access
        self._fetched, self._fetched_at = fetched, self._now()
        self._rejected, self._failure = False, None


class FileSource:
    """Credentials a kubeconfig or a pod holds: values, or files that the kubelet or another program keeps fresh."""

    def __init__(
        self,
        *,
        authorization: str | None = None,
        token_file: Path | None = None,
        certificate: bytes | Path | None = None,
        key: bytes | Path | None = None,
        rereads: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._authorization = authorization
        self._token_file = token_file
        self._certificate = certificate
        self._key = key
        self._rereads = rereads
        self._now = now

    async def fetch(self) -> FetchedCredentials:
        return await asyncio.to_thread(self.read)

    def read(self) -> FetchedCredentials:
        """The same without a loop, for the time when the configuration is loaded."""
        identity = Identity(authorization=self._read_authorization(), certificate=self._read_certificate())
        return FetchedCredentials(
            identity=identity, renew_at=self._now() + REREAD_AFTER_SECONDS if self._rereads else math.inf
        )

    def _read_authorization(self) -> str | None:
        if self._token_file is None:
            return self._authorization
        return bearer(read_file(self._token_file, "token").decode("utf-8", "replace"), f"file {self._token_file}")

    def _read_certificate(self) -> ClientCertificate | None:
        if self._certificate is None or self._key is None:
            return None
        at = f" {self._certificate}" if isinstance(self._certificate, Path) else " in the kubeconfig"
        return ClientCertificate(
            certificate=_content(self._certificate, "client certificate"),
            key=_content(self._key, "client key"),
            origin=f"the client certificate{at}",
        )


def _content(value: bytes | Path, what: str) -> bytes:
    return read_file(value, what) if isinstance(value, Path) else value


def bearer(token: str, origin: str) -> str:
    """The header for a token, which must be one word: anything else would break the request apart."""
    word = token.strip()
    if not word:
        raise CredentialsError(f"The token of the {origin} is empty. Check who writes it.")
    if not (word.isascii() and word.isprintable() and " " not in word):
        raise CredentialsError(f"The token of the {origin} has characters no token has. Check who writes it.")
    return f"Bearer {word}"


def read_file(path: Path, what: str) -> bytes:
    """A credentials file's content, or a `CredentialsError` that calls it by what it is for."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(
            f"The {what} file {path} cannot be read ({error.strerror}). Check that it is there and who may read it."
        ) from None
