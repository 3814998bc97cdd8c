"""A record of every change that somebody asked for: who, what, how it ended. Logs hold it; nothing else is written.

The API server's own audit log names the same person, since the console writes as them.
"""

import structlog
from starlette.requests import Request

from gpu_control_plane.console.metrics import ConsoleMetrics

_log = structlog.get_logger(component="console.audit")
_REFUSED = 400
_FAILED = 500


def describe_action(request: Request, **details: object) -> None:
    """Add to the record of this request: which objects, which command does the same, the reason given."""
    request.state.audit_details = {**getattr(request.state, "audit_details", {}), **details}


def record_action(
    metrics: ConsoleMetrics, request: Request, *, route: str, status: int, person: str | None, address: str
) -> None:
    """Write the record; called once for each request that may change something."""
    outcome = "done" if status < _REFUSED else "refused" if status < _FAILED else "failed"
    metrics.actions.labels(route, outcome).inc()
    details = getattr(request.state, "audit_details", {})
    _log.info(
        "action",
        person=person or "nobody",
        address=address,
        method=request.method,
        route=route,
        path=request.url.path,
        status=status,
        outcome=outcome,
        **details,
    )
