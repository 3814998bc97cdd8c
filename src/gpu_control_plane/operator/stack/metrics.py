"""Metrics of the ClusterPolicy, with the names that NVIDIA's operator has, and of each state of the stack."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State
from gpu_control_plane.operator.stack.status import PolicyStatusInput

_FAILED = -1


class StackMetrics:
    """Metrics of the active ClusterPolicy."""

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._nodes = Gauge("gpu_operator_gpu_nodes_total", "Nodes with a card.", registry=registry)
        self._status = Gauge(
            "gpu_operator_reconciliation_status",
            "1 when all states are ready, 0 when not, -1 when the ClusterPolicy cannot be carried out.",
            registry=registry,
        )
        self._success = Gauge(
            "gpu_operator_reconciliation_last_success_ts_seconds",
            "When all states were last seen to be ready.",
            registry=registry,
        )
        self._reconciliations = Counter(
            "gpu_operator_reconciliation", "Times the stack was looked at.", registry=registry
        )
        self._failures = Counter(
            "gpu_operator_reconciliation_failed", "Times it was found not ready.", registry=registry
        )
        self._features = Gauge(
            "gpu_operator_reconciliation_has_nfd_labels",
            "1 when nodes have labels of Node Feature Discovery.",
            registry=registry,
        )
        self._state = Gauge(
            "gpu_operator_state_nodes",
            "Nodes of each state of the stack: those it should run on and those it runs on.",
            ("state", "what"),
            registry=registry,
        )
        self._ready = Gauge(
            "gpu_operator_state_ready", "1 for each state of the stack that is ready.", ("state",), registry=registry
        )

    def forget(self) -> None:
        """There is no active ClusterPolicy any more, or NVIDIA's operator is active: back to the initial values."""
        for gauge in (self._nodes, self._status, self._success, self._features):
            gauge.set(0)
        self._ready.clear()
        self._state.clear()

    def observe(self, status: StackStatus, observed: PolicyStatusInput) -> None:
        """Set the metrics to what a status says."""
        ready = status.state is State.READY
        self._reconciliations.inc()
        self._nodes.set(observed.gpu_nodes)
        self._features.set(int(observed.feature_labels))
        self._status.set(_FAILED if observed.problem else int(ready))
        if ready:
            self._success.set(self._now())
        else:
            self._failures.inc()
        for state in status.states:
            if state.state is OperandState.DISABLED:
                self._ready.remove_by_labels({"state": state.name})
                self._state.remove_by_labels({"state": state.name})
                continue
            self._ready.labels(state.name).set(int(state.state is OperandState.READY))
            self._state.labels(state.name, "desired").set(state.desired)
            self._state.labels(state.name, "ready").set(state.ready)
