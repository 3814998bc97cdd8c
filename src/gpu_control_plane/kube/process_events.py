"""Events about a process itself: on its Lease, its Secret, its Deployment. Each is told once when it begins, not at
every attempt."""

from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.kube.fields import OpenEnum

PERSISTENT_FAILURES: Final = 8
"""Failures in a row after which an Event tells of them; the log has told of the first."""
LEADERLESS: Final = timedelta(minutes=5)
"""How long nobody has to have led for the next leader to tell."""
REPLICAS_HOLD: Final = timedelta(minutes=15)
"""How long replicas have to be missing: a rollout, or a node that restarts, takes a few minutes."""
RENEWAL_REMINDER: Final = timedelta(days=1)
"""How often certificates that cannot be synchronised are told of again: what is wrong then is weeks away."""


class ProcessEvent(OpenEnum):
    """Reasons of Events about a process."""

    LEASE_NOT_TAKEN = "LeaseNotTaken", "On the Lease: a replica cannot take it; the note says why."
    LEADER_ABSENT = "LeaderAbsent", "On the Lease: nobody had led for minutes before this replica took it."
    REPLICAS_MISSING = "ReplicasMissing", "On the Deployment: replicas have been missing for a while."
    RECONCILE_FAILED = "ReconcileFailed", "On the object, else on the Lease: reconciling it keeps failing."
    CERTIFICATES_NOT_SYNCHRONISED = (
        "CertificatesNotSynchronised",
        "On the Secret: certificates cannot be read, renewed or published; the note says why.",
    )


def absence(renewed: str | None, now: datetime) -> timedelta | None:
    """For how long nobody had led when a Lease with this `renewTime` was taken; None if that is not worth telling.

    The time is another machine's, and is used for this sentence only.
    """
    try:
        away = now - datetime.fromisoformat(renewed or "")
    except (ValueError, OverflowError, TypeError):
        return None
    return away if away >= LEADERLESS else None
