"""Series follow the objects: counts by model, node and state, and conditions, each gone with what it is about."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import device, node_state
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.inventory.metrics import CARDS, InventoryMetrics
from gpu_control_plane.kube.conditions import FALSE, TRUE
from gpu_control_plane.kube.errors import Conflict


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The series of one metric by its labels."""
    samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


def in_state(card: GPUDevice, state: DeviceState | None) -> GPUDevice:
    return msgspec.structs.replace(card, status=msgspec.structs.replace(card.status, state=state))


def test_cards_are_counted_by_model() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    one, other = device(index=0), device(index=1)
    bare = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, hardware=None))
    for old, new in ((None, bare), (bare, one), (None, other), (other, other)):
        metrics._device_changed(old, new)
    assert series(registry, "gpu_inventory_devices")["NVIDIA", "NVIDIA H200"] == 2
    metrics._device_changed(one, None)
    assert series(registry, "gpu_inventory_devices")["NVIDIA", "NVIDIA H200"] == 1


def test_cards_are_counted_by_node_and_state_and_leave_nothing_behind() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    new, free = in_state(device("worker-1", 0), None), in_state(device("worker-1", 0), DeviceState.UNASSIGNED)
    other = in_state(device("worker-1", 1), DeviceState.FAULTED)
    for old, now in ((None, new), (None, other), (new, free)):
        metrics._device_changed(old, now)
    assert series(registry, "gpu_inventory_devices_total") == {("worker-1",): 2}
    assert series(registry, "gpu_inventory_devices_state") == {
        ("worker-1", "Unassigned"): 1,
        ("worker-1", "Faulted"): 1,
    }
    metrics._device_changed(free, None)
    metrics._device_changed(other, None)
    assert series(registry, "gpu_inventory_devices_total") == {}
    assert series(registry, "gpu_inventory_devices_state") == {}


def test_a_condition_is_one_or_zero_and_goes_with_its_node() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    good = node_state("worker-1")
    held = good.status.conditions[0]
    gone = msgspec.structs.replace(held, type="Vanished", status=TRUE, reason="NodeGone")
    conditions = (msgspec.structs.replace(held, status=FALSE, reason="NodeGone"), gone)
    bad = msgspec.structs.replace(good, status=msgspec.structs.replace(good.status, conditions=conditions))
    metrics._state_changed(None, bad)
    assert series(registry, "gpu_inventory_condition") == {
        ("worker-1", "InventoryComplete"): 0,
        ("worker-1", "Vanished"): 1,
    }
    assert series(registry, "gpu_inventory_nodes")["NodeGone",] == 1
    metrics._state_changed(bad, good)
    assert series(registry, "gpu_inventory_condition") == {("worker-1", "InventoryComplete"): 1}
    metrics._state_changed(good, None)
    assert series(registry, "gpu_inventory_condition") == {}


def test_failures_are_counted_but_conflicts_are_not() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    for error in (OSError("broken"), Conflict(409, "Conflict", "the object has been modified")):
        with pytest.raises(type(error)), metrics.handling(CARDS):
            raise error
    errors = series(registry, "gpu_inventory_handler_errors_total")
    assert errors == {("cards",): 1, ("gate",): 0}
