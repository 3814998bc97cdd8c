"""GPU-hours as each person may see them.

Hours are read once for everybody and kept for a minute. Namespaces whose pods somebody may not list are then added up
as one, for each of them anew: hours of others count, and nothing says whose they are.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import msgspec
import structlog
from starlette.requests import Request

from gpu_control_plane.console.errors import BadRequest, Unavailable
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.console.fleet_caches import HIDDEN, FleetCaches
from gpu_control_plane.console.viewer import Viewer
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.usage.hours import By, read_period, under_other_names
from gpu_control_plane.usage.prometheus import PrometheusAt
from gpu_control_plane.usage.reading import Usage, pools_of, usage_from_prometheus, usage_of

_HOLDS_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 30.0
_AT_ONCE: Final = 2
_MOST_ANSWERS: Final = 50
_MOST_NAMESPACES: Final = 1000
"""About so many, those that held the most, a person's rights are asked; they see none of the others."""
_NAMES_NO_NAMESPACE: Final = frozenset({By.POOL, By.MODEL, By.NODE})
_DEFAULT: Final = "7d"
_LONGEST: Final = timedelta(days=92)

type ReadUsage = Callable[[By, timedelta], Awaitable[Usage]]

_log = structlog.get_logger(component="console")


class UsageAnswers:
    """`request.app.state.usage`. At most two questions are read at a time, each for half a minute."""

    def __init__(self, read: ReadUsage, now: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._answers: ExpiringAnswers[tuple[By, timedelta], Usage] = ExpiringAnswers(most=_MOST_ANSWERS, now=now)

    async def seen_by(self, viewer: Viewer, by: By, since: timedelta) -> Usage:
        """What this person may see of it. `Unavailable` if the source or their rights do not answer."""
        whole = await self._answers.get((by, since), lambda: self._ask(by, since), lambda _usage: _HOLDS_SECONDS)
        if by in _NAMES_NO_NAMESPACE or await viewer.may("list", "pods"):
            return whole
        names = list(dict.fromkeys(_namespace(row.key) for row in whole.rows))[:_MOST_NAMESPACES]
        visible = await viewer.namespaces_with("list", "pods", names)
        return await asyncio.to_thread(hide_namespaces, whole, visible)

    async def _ask(self, by: By, since: timedelta) -> Usage:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._turn:
                return await self._read(by, since)
        except (KubeError, TimeoutError) as error:
            _log.warning("usage not read", by=str(by), since=str(since), why=str(error) or "not in time")
            raise Unavailable("What GPU-hours are read from does not answer in time. Try again.") from error


def hide_namespaces(usage: Usage, visible: frozenset[str]) -> Usage:
    """Hours by namespace or owner for somebody who may list pods in these namespaces only."""
    rows = under_other_names(usage.rows, lambda key: key if _namespace(key) in visible else HIDDEN)
    return msgspec.structs.replace(usage, rows=rows)


def read_usage(client: Client, caches: FleetCaches, prometheus_url: str | None) -> ReadUsage:
    """From Prometheus where its address is known, else from the caches and the pods that hold cards now."""

    async def from_prometheus(by: By, since: timedelta) -> Usage:
        pools = pools_of(caches.whole().cards.values()) if by is By.POOL else {}
        found = await usage_from_prometheus(PrometheusAt(prometheus_url or ""), by, since, pools)
        # Its address is nobody's business, and may have a password in it.
        return msgspec.structs.replace(found, source="Prometheus")

    async def held_now(by: By, since: timedelta) -> Usage:
        return await usage_of(client, caches.whole(), by, since, utc_now())

    return from_prometheus if prometheus_url else held_now


async def usage_for(request: Request) -> Usage:
    """The answer to what the URL asks: `since`, a week unless said, and `by`."""
    since, by = read_period(period_of(request)), request.query_params.get("by", By.NAMESPACE)
    if since is None or since > _LONGEST:
        raise BadRequest(f"since is a length of time such as 12h, 7d or 4w, {_LONGEST.days}d at most.")
    if by not in tuple(By):
        raise BadRequest(f"by is one of {', '.join(By)}.")
    answers: UsageAnswers = request.app.state.usage
    return await answers.seen_by(request.state.viewer, By(by), since)


def period_of(request: Request) -> str:
    """How far back the URL asks, as it writes it."""
    return request.query_params.get("since", _DEFAULT)


def _namespace(key: str) -> str:
    """Of a namespace, or of an owner in one."""
    return key.partition("/")[0]
