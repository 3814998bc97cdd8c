"""Numbers of the stack: they follow what a status says, and go with the policy."""

from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State, StateReport
from gpu_control_plane.operator.stack.metrics import StackMetrics
from gpu_control_plane.operator.stack.status import PolicyStatusInput

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PICTURE = PolicyStatusInput(generation=1, namespace="gpu", gpu_nodes=3, now=NOW)
DRIVER = StateReport(name="state-driver", state=OperandState.READY, desired=3, ready=3)
OFF = StateReport(name="state-dcgm", state=OperandState.DISABLED)
READY = StackStatus(state=State.READY, states=(DRIVER, OFF))


def shown(registry: CollectorRegistry) -> dict[str, float]:
    """Every gauge, with its labels."""
    return {
        sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
        for metric in registry.collect()
        if metric.type == "gauge"
        for sample in metric.samples
    }


def made() -> tuple[CollectorRegistry, StackMetrics]:
    registry = CollectorRegistry()
    return registry, StackMetrics(registry, now=lambda: 5.0)


def test_metrics_follow_the_status() -> None:
    registry, metrics = made()
    metrics.observe(READY, PICTURE)
    assert shown(registry) == {
        "gpu_operator_gpu_nodes_total": 3,
        "gpu_operator_reconciliation_status": 1,
        "gpu_operator_reconciliation_last_success_ts_seconds": 5,
        "gpu_operator_reconciliation_has_nfd_labels": 1,
        "gpu_operator_state_ready,state-driver": 1,
        "gpu_operator_state_nodes,state-driver,desired": 3,
        "gpu_operator_state_nodes,state-driver,ready": 3,
    }


def test_a_state_that_is_switched_off_has_no_series() -> None:
    registry, metrics = made()
    metrics.observe(READY, PICTURE)
    off: dict[str, Any] = {"state": State.READY, "states": (OFF, StateReport(name=DRIVER.name, state=OFF.state))}
    metrics.observe(StackStatus(**off), PICTURE)
    assert not [name for name in shown(registry) if "state-driver" in name]


def test_without_a_policy_they_are_as_they_were_before_the_first() -> None:
    registry, metrics = made()
    before = shown(registry)
    metrics.observe(READY, PICTURE)
    metrics.forget()
    assert shown(registry) == before
