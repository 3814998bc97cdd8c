"""Conditions by Kubernetes' conventions: one of a type, and a transition time that moves only with the status."""

from collections.abc import Iterable
from datetime import datetime

from gpu_control_plane.kube.objects import Condition

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    found = find(conditions, kind)
    return found is not None and found.status == TRUE


def condition(
    held: Iterable[Condition],
    kind: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    generation: int = 0,
    now: datetime,
) -> Condition:
    """The condition to write; None is `Unknown`. Its transition time is that of `held` while the status stays."""
    word = UNKNOWN if status is None else TRUE if status else FALSE
    old = find(held, kind)
    since = old.last_transition_time if old is not None and old.status == word else now.replace(microsecond=0)
    return Condition(
        type=kind,
        status=word,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
