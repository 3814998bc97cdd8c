"""Sign-in by an identity provider: OpenID Connect's code flow with PKCE, state and nonce.

The ID token that comes back is for the API server: whose it is, its TokenReview says. It is checked here as well, so
that a code of somebody else's flow, or a token of another client, begins no session.
"""

import base64
import hashlib
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import msgspec
import structlog
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gpu_control_plane.console.errors import NotSignedIn, Unavailable

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SCOPES: Final = ("openid", "email", "groups", "offline_access")

_PATIENCE = aiohttp.ClientTimeout(total=10)
_LARGEST_ANSWER: Final = 1 << 20
_KEYS_SECONDS: Final = 600.0
_LEAST_KEYS_SECONDS: Final = 10.0
_LEEWAY_SECONDS: Final = 60

_log = structlog.get_logger(component="console.oidc")


class OIDCSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which provider, and who we are to it."""

    issuer: str
    client_id: str
    client_secret: str
    redirect_url: str
    scopes: tuple[str, ...] = SCOPES
    authority: Path | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider gave. `expires` is in seconds since the epoch."""

    id_token: str
    refresh_token: str | None
    expires: float
    claims: Mapping[str, Any]


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that has begun: what must come back for it to be this one."""

    state: str
    nonce: str
    verifier: str
    next: str
    began: float


class _Discovery(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str
    refresh_token: str | None = None


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    error: str = ""
    error_description: str = ""


class IdentityProvider:
    """One provider. Where it is and its keys are read when they are needed, and again after a while."""

    def __init__(self, settings: OIDCSettings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._discovery: _Discovery | None = None
        self._keys: KeySet | None = None
        self._keys_read = 0.0
        self._ssl: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=str(settings.authority)) if settings.authority is not None else True
        )

    async def begin(self, wanted: str) -> tuple[str, Flow]:
        """Where to send the browser, and what to remember until it is back."""
        flow = Flow(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            next=wanted,
            began=self._now(),
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = (await self._discover()).authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", flow

    async def finish(self, flow: Flow, code: str) -> Tokens:
        """Exchange the code for tokens."""
        answer = await self._request_tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._settings.redirect_url,
                "code_verifier": flow.verifier,
            }
        )
        return await self._checked(answer, nonce=flow.nonce)

    async def refresh(self, refresh_token: str, subject: str) -> Tokens:
        """New tokens for the same person."""
        answer = await self._request_tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})
        tokens = await self._checked(answer, nonce=None)
        if tokens.claims.get("sub") != subject:
            raise NotSignedIn("The identity provider answered for somebody else. Sign in again.")
        if tokens.refresh_token is None:
            return msgspec.structs.replace(tokens, refresh_token=refresh_token)
        return tokens

    async def _checked(self, answer: _TokenAnswer, nonce: str | None) -> Tokens:
        claims = await self._claims(answer.id_token)
        audiences = claims.get("aud")
        mine = audiences if isinstance(audiences, list) else [audiences]
        right = (
            claims.get("iss") == self._settings.issuer
            and self._settings.client_id in (*mine, claims.get("azp"))
            and isinstance(claims.get("exp"), int | float)
            and claims["exp"] > self._now() - _LEEWAY_SECONDS
            and (nonce is None or secrets.compare_digest(str(claims.get("nonce", "")), nonce))
        )
        if not right:
            raise NotSignedIn("The identity provider's token is not for this sign-in. Try again.")
        return Tokens(
            id_token=answer.id_token, refresh_token=answer.refresh_token, expires=float(claims["exp"]), claims=claims
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            return jwt.decode(token, await self._read_keys(), algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError):
            # The provider may have taken new keys since.
            try:
                fresh = await self._read_keys(anew=True)
                return jwt.decode(token, fresh, algorithms=list(ALGORITHMS)).claims
            except (JoseError, ValueError) as error:
                raise NotSignedIn("The identity provider's token is not signed by it. Try again.") from error

    async def _read_keys(self, *, anew: bool = False) -> KeySet:
        age = self._now() - self._keys_read
        if self._keys is None or age > _KEYS_SECONDS or (anew and age > _LEAST_KEYS_SECONDS):
            answer = await self._get((await self._discover()).jwks_uri)
            self._keys, self._keys_read = KeySet.import_key_set(msgspec.json.decode(answer)), self._now()
        return self._keys

    async def _discover(self) -> _Discovery:
        if self._discovery is None:
            answer = await self._get(f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            try:
                found = msgspec.json.decode(answer, type=_Discovery)
            except msgspec.DecodeError as error:
                raise Unavailable("The identity provider does not describe itself. Check its address.") from error
            if found.issuer != self._settings.issuer:
                raise Unavailable(f"The identity provider calls itself {found.issuer}. Check its address.")
            self._discovery = found
        return self._discovery

    async def _request_tokens(self, form: dict[str, str]) -> _TokenAnswer:
        endpoint = (await self._discover()).token_endpoint
        credentials = aiohttp.encode_basic_auth(self._settings.client_id, self._settings.client_secret)
        status, answer = await self._exchange("POST", endpoint, data=form, headers={"Authorization": credentials})
        if status >= 500:  # noqa: PLR2004 - a server error
            raise Unavailable("The identity provider has a problem. Try again.")
        try:
            return msgspec.json.decode(answer, type=_TokenAnswer)
        except msgspec.DecodeError:
            _log.warning("identity provider refuses", status=status, answer=_failure(answer))
            raise NotSignedIn("The identity provider does not confirm this sign-in. Sign in again.") from None

    async def _get(self, url: str) -> bytes:
        status, answer = await self._exchange("GET", url)
        if status != 200:  # noqa: PLR2004 - anything else is no answer
            raise Unavailable(f"The identity provider answers {status}. Try again.")
        return answer

    async def _exchange(self, method: str, url: str, **options: Any) -> tuple[int, bytes]:
        try:
            async with (
                aiohttp.ClientSession(timeout=_PATIENCE) as session,
                session.request(method, url, ssl=self._ssl, allow_redirects=False, **options) as response,
            ):
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _LARGEST_ANSWER:
                        raise Unavailable("The identity provider answers more than it should.")
                return response.status, bytes(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("identity provider does not answer", url=url, why=str(error) or type(error).__name__)
            raise Unavailable("The identity provider does not answer. Try again.") from error


def _failure(answer: bytes) -> str:
    try:
        found = msgspec.json.decode(answer, type=_Failure)
    except msgspec.DecodeError:
        return "unreadable"
    return f"{found.error} {found.error_description}".strip()
