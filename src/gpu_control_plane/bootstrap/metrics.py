"""What bootstrap reports in numbers: how many nodes are ready, and the names of those where something is missing."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.conditions import find, is_true

TROUBLES: Final = (
    NodeCondition.DRIVER_MISSING,
    NodeCondition.TOOLKIT_MISSING,
    NodeCondition.MONITORING_MISSING,
    NodeCondition.DEGRADED,
)


class BootstrapMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.nodes = Gauge(
            "gpu_bootstrap_nodes",
            "GPU nodes, by the reason of their condition ReadyForPooling.",
            ("reason",),
            registry=registry,
        )
        self.condition = Gauge(
            "gpu_bootstrap_condition",
            "1 for each node on which something is missing; no series where all is well.",
            ("node", "condition"),
            registry=registry,
        )

    def follow(self, states: Cache[GPUNodeState]) -> None:
        states.on_change(self._changed)

    def _changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        was, now = _reason(old), _reason(new)
        if was != now:
            if was is not None:
                self.nodes.labels(was).dec()
            if now is not None:
                self.nodes.labels(now).inc()
        for trouble in TROUBLES:
            if new is not None and is_true(new.status.conditions, trouble):
                self.condition.labels(new.name, trouble).set(1)
            elif old is not None and is_true(old.status.conditions, trouble):
                self.condition.remove(old.name, trouble)


def _reason(state: GPUNodeState | None) -> str | None:
    held = find(state.status.conditions, NodeCondition.READY_FOR_POOLING) if state is not None else None
    return held.reason if held is not None else None
