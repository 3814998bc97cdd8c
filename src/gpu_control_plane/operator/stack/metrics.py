"""The numbers that users of NVIDIA's operator know, and beside them each state of the stack by name."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State
from gpu_control_plane.operator.stack.status import Picture

_FAILED = -1


class StackMetrics:
    """Metrics of the ClusterPolicy in force."""

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
        self._passes = Counter("gpu_operator_reconciliation", "Times the stack was looked at.", registry=registry)
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
        """Nobody is in force any more, or somebody else is in charge: numbers are as they were before."""
        for gauge in (self._nodes, self._status, self._success, self._features):
            gauge.set(0)
        self._ready.clear()
        self._state.clear()

    def observe(self, status: StackStatus, picture: Picture) -> None:
        """Take over what a status says."""
        ready = status.state is State.READY
        self._passes.inc()
        self._nodes.set(picture.gpu_nodes)
        self._features.set(int(picture.feature_labels))
        self._status.set(_FAILED if picture.problem else int(ready))
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
