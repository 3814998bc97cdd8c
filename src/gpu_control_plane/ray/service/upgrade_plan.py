"""The next step of an upgrade, whatever its mode: shares, backend, patches, and the roles after it. Pure."""

from datetime import timedelta

import msgspec

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import ServedCluster
from gpu_control_plane.ray.service.actions import PatchCluster
from gpu_control_plane.ray.service.backend import Candidate
from gpu_control_plane.ray.service.roles import Roles
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot


class UpgradePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The next step of an upgrade."""

    active: ServedCluster | None = None
    """Shares of the two clusters, where requests are divided."""
    pending: ServedCluster | None = None
    backend: str = ""
    """The cluster that the Service is to point to."""
    complete: bool = False
    """Whether the target has taken over everything."""
    patches: tuple[PatchCluster, ...] = ()
    progress: str = ""
    loss: str = ""
    again_in: timedelta | None = None


class NextRoles(msgspec.Struct, frozen=True, kw_only=True):
    """The roles that the status gets."""

    active: str = ""
    pending: str = ""
    promoted: bool = False
    undone: bool = False


def next_roles(roles: Roles, plan: UpgradePlan) -> NextRoles:
    """The roles after this pass: a complete plan promotes the pending cluster, or ends the rollback."""
    if not plan.complete or not roles.pending:
        return NextRoles(active=roles.active, pending=roles.pending)
    if roles.back:
        return NextRoles(active=roles.active, undone=True)
    return NextRoles(active=roles.pending, promoted=True)


def waits_for(view: ClusterView | None) -> str:  # noqa: PLR0911 - one question after the other
    """What a cluster still waits for before it answers, as a sentence; empty if it answers."""
    if view is None:
        return "a cluster is being made"
    if not view.head_ready:
        return f"waiting for the head of {view.name} to be ready"
    if view.trouble:
        return f"Ray Serve of {view.name}: {view.trouble}"
    if view.details is None:
        return f"waiting for Ray Serve of {view.name} to answer"
    lacking = sorted(
        f"{name} is {application.status}" + (f" ({application.message})" if application.message else "")
        for name, application in view.details.applications.items()
        if not application.running
    )
    if lacking:
        return f"applications of {view.name}: {'; '.join(lacking)}"
    if not view.details.applications:
        return f"{view.name} has no application yet"
    return "" if view.serving_pods else f"no pod of {view.name} is ready for requests"


def candidate(s: Snapshot, view: ClusterView | None, *, takes_over: bool) -> Candidate:
    if view is None:
        return Candidate("", takes_over=False, answers=False)
    return Candidate(view.name, takes_over=takes_over, answers=answers(s, view))


def answers(s: Snapshot, view: ClusterView) -> bool:
    """Whether a cluster answers at all. One without a configuration that gets no requests does not, however ready
    its pods are."""
    known = bool(view.annotation(Annotation.SERVE_CONFIG)) or s.backend == view.name
    return known and view.answers_some
