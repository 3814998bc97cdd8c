"""Metrics of bootstrap: the phase of each node, and which of its conditions are true."""

import enum
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import GOOD_STATUS
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.kube.metrics import CountGauge, counting_failures

CONDITIONS: Final = "conditions"
"""The one handler."""


class Phase(enum.StrEnum):
    """How far a node is on its way into pools."""

    DISCOVERING = "Discovering"
    """Not all of its cards are known."""
    VALIDATING = "Validating"
    """All are known, and something keeps them from joining pools."""
    MONITORING = "Monitoring"
    """They may join pools, but no program exports their metrics."""
    READY = "Ready"
    NOT_MANAGED = "NotManaged"
    """A label has taken it out."""


class BootstrapMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.nodes = CountGauge(
            Gauge(
                "gpu_bootstrap_nodes",
                "GPU nodes, by the reason of their condition ReadyForPooling.",
                ("reason",),
                registry=registry,
            )
        )
        self.phase = Gauge(
            "gpu_bootstrap_node_phase",
            "1 for the phase each GPU node is in: Discovering, Validating, Monitoring, Ready or NotManaged.",
            ("node", "phase"),
            registry=registry,
        )
        self.condition = Gauge(
            "gpu_bootstrap_condition",
            "1 for each condition of a node that is true, of those that bootstrap writes; none for one that is not.",
            ("node", "condition"),
            registry=registry,
        )
        self.errors = Counter(
            "gpu_bootstrap_handler_errors_total",
            "Attempts that failed, by handler: conditions.",
            ("handler",),
            registry=registry,
        )
        self.errors.labels(CONDITIONS)

    def follow(self, states: Cache[GPUNodeState]) -> None:
        states.on_change(self._changed)

    def handling(self, handler: str) -> AbstractContextManager[None]:
        """Count what fails in the block."""
        return counting_failures(self.errors.labels(handler))

    def _changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        self.nodes.move(_reason(old), _reason(new))
        self._follow_phase(old, new)
        for kind in GOOD_STATUS:
            if new is not None and is_true(new.status.conditions, kind):
                self.condition.labels(new.name, kind).set(1)
            elif old is not None and is_true(old.status.conditions, kind):
                self.condition.remove(old.name, kind)

    def _follow_phase(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        was, now = _phase(old), _phase(new)
        if was == now:
            return
        if old is not None and was is not None:
            self.phase.remove(old.name, was)
        if new is not None and now is not None:
            self.phase.labels(new.name, now).set(1)


def _reason(state: GPUNodeState | None) -> tuple[str] | None:
    held = find(state.status.conditions, NodeCondition.READY_FOR_POOLING) if state is not None else None
    return (held.reason,) if held is not None else None


def _phase(state: GPUNodeState | None) -> Phase | None:
    if state is None:
        return None
    held = state.status.conditions
    if _reason(state) == (Reason.NOT_MANAGED,):
        return Phase.NOT_MANAGED
    if not is_true(held, NodeCondition.INVENTORY_COMPLETE):
        return Phase.DISCOVERING
    if not is_true(held, NodeCondition.READY_FOR_POOLING):
        return Phase.VALIDATING
    return Phase.MONITORING if is_true(held, NodeCondition.MONITORING_MISSING) else Phase.READY
