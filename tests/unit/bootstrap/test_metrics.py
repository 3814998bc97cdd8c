"""Series follow the nodes: one phase each, the conditions that are true, and nothing of those that are gone."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import NOON, node_state
from gpu_control_plane.api.names import Reason
from gpu_control_plane.bootstrap.metrics import CONDITIONS, BootstrapMetrics, Phase
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.errors import Conflict
from unit.inventory.test_metrics import series


def node_with(**conditions: bool) -> GPUNodeState:
    """A node with these conditions."""
    held = tuple(
        Condition(type=kind, status=str(status), reason="Because", last_transition_time=NOON)
        for kind, status in conditions.items()
    )
    state = node_state("worker-1")
    return msgspec.structs.replace(state, status=msgspec.structs.replace(state.status, conditions=held))


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (node_with(), Phase.DISCOVERING),
        (node_with(InventoryComplete=False, ReadyForPooling=False), Phase.DISCOVERING),
        (node_with(InventoryComplete=True, DriverMissing=True, ReadyForPooling=False), Phase.VALIDATING),
        (node_with(InventoryComplete=True, Degraded=True, ReadyForPooling=False), Phase.VALIDATING),
        (node_with(InventoryComplete=True, MonitoringMissing=True, ReadyForPooling=True), Phase.MONITORING),
        (node_with(InventoryComplete=True, MonitoringMissing=False, ReadyForPooling=True), Phase.READY),
        (node_with(InventoryComplete=True, GFDReady=False, ReadyForPooling=True), Phase.READY),
    ],
)
def test_a_node_has_one_phase(state: GPUNodeState, phase: Phase) -> None:
    registry = CollectorRegistry()
    metrics = BootstrapMetrics(registry)
    metrics._changed(None, node_with(InventoryComplete=True, ReadyForPooling=True))
    metrics._changed(node_with(InventoryComplete=True, ReadyForPooling=True), state)
    assert series(registry, "gpu_bootstrap_node_phase") == {("worker-1", phase): 1}
    metrics._changed(state, None)
    assert series(registry, "gpu_bootstrap_node_phase") == {}


@pytest.mark.parametrize("complete", [True, False])
def test_a_node_that_was_taken_out_is_in_no_other_phase(complete: bool) -> None:
    registry = CollectorRegistry()
    state = node_with(InventoryComplete=complete, ReadyForPooling=False)
    held = tuple(msgspec.structs.replace(one, reason=Reason.NOT_MANAGED) for one in state.status.conditions)
    state = msgspec.structs.replace(state, status=msgspec.structs.replace(state.status, conditions=held))
    BootstrapMetrics(registry)._changed(None, state)
    assert series(registry, "gpu_bootstrap_node_phase") == {("worker-1", Phase.NOT_MANAGED): 1}


def test_every_condition_of_bootstrap_has_a_series_while_it_is_true() -> None:
    registry = CollectorRegistry()
    metrics = BootstrapMetrics(registry)
    bad = node_with(InventoryComplete=True, DriverMissing=True, Degraded=False, ReadyForPooling=False)
    good = node_with(InventoryComplete=True, DriverMissing=False, GFDReady=True, ReadyForPooling=True)
    metrics._changed(None, bad)
    assert series(registry, "gpu_bootstrap_condition") == {("worker-1", "DriverMissing"): 1}
    metrics._changed(bad, good)
    assert series(registry, "gpu_bootstrap_condition") == {
        ("worker-1", kind): 1 for kind in ("GFDReady", "ReadyForPooling")
    }
    assert series(registry, "gpu_bootstrap_nodes") == {("Because",): 1}
    metrics._changed(good, None)
    assert series(registry, "gpu_bootstrap_condition") == {}


def test_failures_are_counted_but_conflicts_are_not() -> None:
    registry = CollectorRegistry()
    metrics = BootstrapMetrics(registry)
    for error in (OSError("broken"), Conflict(409, "Conflict", "the object has been modified")):
        with pytest.raises(type(error)), metrics.handling(CONDITIONS):
            raise error
    assert series(registry, "gpu_bootstrap_handler_errors_total") == {("conditions",): 1}
