"""Ray: groups that wait for cards, jobs that do not begin, services that do not answer."""

from typing import Final

from monitoring.alert import Alert, Group, Severity
from monitoring.promql import led

from gpu_control_plane.ray.waiting.events import WaitingEvent

_LONG_SECONDS: Final = 900


def _since(metric: str) -> str:
    """Since how many seconds; only what has lasted for a quarter of an hour."""
    return f"time() - max by (namespace, name) {led(metric)} > {_LONG_SECONDS}"


RAY: Final = Group(
    "ray",
    (
        Alert(
            name="GPURayWorkersWait",
            expr=f"max by (namespace, cluster, group) {led('gpu_ray_workers_waiting')} > 0",
            hold="15m",
            severity=Severity.WARNING,
            summary="Workers of the RayCluster {{ $labels.namespace }}/{{ $labels.cluster }} wait for cards.",
            description="{{ $value }} workers of the group {{ $labels.group }} ask for cards and have no node. "
            "What they wait for: kubectl gpu ray -n {{ $labels.namespace }}",
            events=(WaitingEvent.WORKERS,),
        ),
        Alert(
            name="GPURayJobWaits",
            expr=_since("gpu_ray_job_waiting_since_timestamp_seconds"),
            hold="1m",
            severity=Severity.WARNING,
            summary="The RayJob {{ $labels.namespace }}/{{ $labels.name }} does not begin.",
            description="It has waited for a quarter of an hour: its cluster does not come up, or Ray does not have "
            "it, does not begin it or has lost it. What it waits for: kubectl gpu ray -n {{ $labels.namespace }}",
            events=(WaitingEvent.JOB,),
        ),
        Alert(
            name="GPURayServiceNotReady",
            expr=_since("gpu_ray_service_not_ready_since_timestamp_seconds"),
            hold="1m",
            severity=Severity.CRITICAL,
            summary="The RayService {{ $labels.namespace }}/{{ $labels.name }} answers no requests.",
            description="It has not been ready for a quarter of an hour. Its condition Ready says why: "
            "kubectl -n {{ $labels.namespace }} describe rayservice {{ $labels.name }}",
            events=(WaitingEvent.SERVICE,),
        ),
    ),
)
