"""Why a request gets no answer: each becomes a page, or JSON for a program, with the sentence for a person."""

from http import HTTPStatus
from typing import ClassVar


class Refused(Exception):
    """Root of the tree: a request that is answered with `status` and this sentence."""

    status: ClassVar[HTTPStatus] = HTTPStatus.FORBIDDEN
    reason: ClassVar[str] = "Forbidden"
    """One word for metrics, logs and programs."""


class NotSignedIn(Refused):
    """There is no session and no token, or not a valid one any more."""

    status = HTTPStatus.UNAUTHORIZED
    reason = "NotSignedIn"


class ForeignOrigin(Refused):
    """The request was made by another site."""

    reason = "ForeignOrigin"


class NotAllowed(Refused):
    """Kubernetes' RBAC does not allow it; the sentence names the missing verb."""

    reason = "NotAllowed"


class TooManyRequests(Refused):
    status = HTTPStatus.TOO_MANY_REQUESTS
    reason = "TooManyRequests"


class BadRequest(Refused):
    status = HTTPStatus.BAD_REQUEST
    reason = "BadRequest"


class NoSuchThing(Refused):
    """No such card, pool, node, pod or page; or one that this person may not know of."""

    status = HTTPStatus.NOT_FOUND
    reason = "NotFound"


class Unavailable(Refused):
    """The API server or the identity provider does not answer: nobody's rights are known, so nothing is shown."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    reason = "Unavailable"
