"""Everything that can go wrong with an API server, each as a sentence that says what to do.

Callers catch the narrowest class they can act on. A command line prints the message alone, so that each message is a
complete sentence.
"""

import msgspec

from gpu_control_plane.kube.objects import Key, Object


class KubeError(Exception):
    """Root of the tree: catch it where any failure of the API leads to the same answer."""


class ConfigError(KubeError):
    """The kubeconfig or the in-cluster files cannot be used; nothing was sent."""


class NoKubeconfig(ConfigError):
    """Nothing names a cluster."""


class CredentialsError(KubeError):
    """A token file, certificate or exec plugin could not give credentials."""


class Unreachable(KubeError):
    """No answer: refused, reset, timed out or broken TLS. The request may or may not have been carried out."""


class WatchBroken(KubeError):
    """A watch ended in the middle of an event; it resumes from the last whole one."""


class CannotWatch(KubeError):
    """A process cannot start because a kind it needs cannot be watched; the message says what to do about it."""


class LeadershipLost(KubeError):
    """This process no longer holds the lease, so a write was not sent."""


class ApiError(KubeError):
    """The API server answered with a Status that is not Success."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400: the request makes no sense to this server."""


class Unauthorized(ApiError):
    """401: the credentials are wrong or expired, and fetching new ones did not help."""


class Forbidden(ApiError):
    """403: RBAC or an admission policy says no."""


class NotFound(ApiError):
    """404: no such object, or no such resource (`resource_missing`)."""

    @property
    def resource_missing(self) -> bool:
        """True when the kind itself is not served, as before its CRD is installed."""
        return self.reason != "NotFound" or "could not find the requested resource" in self.message


class AlreadyExists(ApiError):
    """409 on create: an object of that name exists."""


class StaleWrite(msgspec.Struct, frozen=True):
    """The version of an object that a write was bound to, and that is not the latest any more."""

    kind: type[Object]
    key: Key
    version: str


class Conflict(ApiError):
    """409 on write: the object changed since it was read, or another manager owns the field."""

    stale_write: StaleWrite | None = None
    """Set by the client where the write was bound to a version."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema or a rule; the message names the field."""


class TooManyRequests(ApiError):
    """429: the server asks to slow down."""


class ServerError(ApiError):
    """5xx: the API server failed."""


_SERVER_FAULT = 500
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(code: int, reason: str, message: str, retry_after: float | None = None) -> ApiError:
    """The error class for a Status answer."""
    kind = (
        AlreadyExists
        if reason == "AlreadyExists"
        else _BY_CODE.get(code, ServerError if code >= _SERVER_FAULT else ApiError)
    )
    return kind(code, reason, message, retry_after)
