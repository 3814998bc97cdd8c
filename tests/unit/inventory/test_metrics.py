"""Series follow the objects: counts by model and reason, and names only for nodes in trouble."""

import msgspec
from prometheus_client import CollectorRegistry

from gpu_control_plane.api.examples import device, node_state
from gpu_control_plane.bootstrap.metrics import BootstrapMetrics
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.kube.conditions import FALSE, TRUE


def series(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Every gauge by name and labels, those at zero left out unless they mean something."""
    samples = [sample for metric in registry.collect() for sample in metric.samples if metric.type == "gauge"]
    return {
        (sample.name, *sample.labels.values()): sample.value
        for sample in samples
        if sample.value or "condition" in sample.name
    }


def test_cards_are_counted_by_model() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    one, other = device(index=0), device(index=1)
    bare = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, hardware=None))
    for old, new in ((None, bare), (bare, one), (None, other), (other, other)):
        metrics._device_changed(old, new)
    assert series(registry) == {("gpu_inventory_devices", "NVIDIA", "NVIDIA H200"): 2}
    metrics._device_changed(one, None)
    assert series(registry) == {("gpu_inventory_devices", "NVIDIA", "NVIDIA H200"): 1}


def test_only_nodes_in_trouble_have_series_of_their_own() -> None:
    registry = CollectorRegistry()
    metrics = InventoryMetrics(registry)
    good = node_state("worker-1")
    held = good.status.conditions[0]
    bad_conditions = (msgspec.structs.replace(held, status=FALSE, reason="CardsMissing"),)
    bad = msgspec.structs.replace(good, status=msgspec.structs.replace(good.status, conditions=bad_conditions))
    metrics._state_changed(None, bad)
    trouble = ("gpu_inventory_condition", "worker-1", "InventoryComplete")
    assert series(registry) == {("gpu_inventory_nodes", "CardsMissing"): 1, trouble: 0}
    metrics._state_changed(bad, good)
    assert series(registry) == {("gpu_inventory_nodes", "InventorySynced"): 1}
    metrics._state_changed(good, bad)
    metrics._state_changed(bad, None)
    assert series(registry) == {}


def test_missing_software_names_its_node_until_it_is_there() -> None:
    registry = CollectorRegistry()
    metrics = BootstrapMetrics(registry)
    good = node_state("worker-1")
    missing = msgspec.structs.replace(good.status.conditions[0], type="DriverMissing", status=TRUE, reason="x")
    bad = msgspec.structs.replace(good, status=msgspec.structs.replace(good.status, conditions=(missing,)))
    metrics._changed(None, bad)
    assert series(registry) == {("gpu_bootstrap_condition", "worker-1", "DriverMissing"): 1}
    metrics._changed(bad, good)
    assert series(registry) == {("gpu_bootstrap_nodes", "Ready"): 1}
