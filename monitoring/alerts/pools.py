"""Pools: what users of cards notice first."""

from typing import Final

from monitoring.alert import Alert, Group, Severity
from monitoring.promql import led, pool

from gpu_control_plane.api.gpupool import PoolPhase
from gpu_control_plane.api.names import EventReason

POOLS: Final = Group(
    "pools",
    (
        Alert(
            name="GPUPoolCapacityLow",
            expr=f"{pool('available')} / {pool('total')} < 0.1",
            hold="15m",
            severity=Severity.WARNING,
            summary="Less than a tenth of {{ $labels.resource }} is free.",
            description="Of {{ $labels.resource }}, a resource of the pool {{ $labels.pool }}, "
            "{{ $value | humanizePercentage }} is free. New pods may have "
            "to wait; each is told what for. Approve more cards, or look for pods that hold cards and do not use them.",
            events=(EventReason.WAITING_FOR_CARDS,),
        ),
        Alert(
            name="GPUReservationExpired",
            expr=f"max by (pool) {led('gpupool_reservations_expired')} > 0",
            hold="5m",
            severity=Severity.WARNING,
            summary="Pods of the pool {{ $labels.pool }} do not start although it has room for them.",
            description="{{ $value }} pods of the pool {{ $labels.pool }} had units reserved until the reservation "
            "expired. The units are still free on one node, so something else is missing: CPU, memory, a volume, a "
            "toleration. Others may have the units now; the pods still start when they can.",
            events=(EventReason.RESERVATION_EXPIRED,),
        ),
        Alert(
            name="GPUPoolMisconfigured",
            expr=f'max by (pool) (gpupool_phase{{phase="{PoolPhase.MISCONFIGURED}"}}) == 1',
            hold="5m",
            severity=Severity.WARNING,
            summary="The pool {{ $labels.pool }} cannot be carried out.",
            description="The pool {{ $labels.pool }}, or its part on some nodes, is given to nobody. Its condition "
            "Configured says which node, why, and what to do: kubectl describe gpupool {{ $labels.pool }}",
            events=(EventReason.POOL_PHASE_CHANGED,),
        ),
        Alert(
            name="GPUPoolMaintenance",
            expr="max by (pool) (gpupool_maintenance_deadline_timestamp_seconds) < time()",
            hold="1m",
            severity=Severity.WARNING,
            summary="The maintenance of the pool {{ $labels.pool }} is overdue.",
            description="The cards of the pool {{ $labels.pool }} are still not divided as its spec says, past "
            "spec.maintenance.deadline. No pod is ended for it. Who is in the way: "
            "kubectl describe gpupool {{ $labels.pool }}",
            events=(EventReason.POOL_MAINTENANCE_OVERDUE,),
        ),
    ),
)
