"""The page for people names every metric and every reason that inventory and bootstrap use."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.api.names import EventReason, Reason
from gpu_control_plane.bootstrap.metrics import BootstrapMetrics
from gpu_control_plane.inventory.metrics import InventoryMetrics

PAGE = (Path(__file__).parents[3] / "docs/inventory.md").read_text()


def test_every_metric_is_described_as_it_describes_itself() -> None:
    registry = CollectorRegistry()
    InventoryMetrics(registry)
    BootstrapMetrics(registry)
    for metric in registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        assert f"`{name}`" in PAGE
        assert metric.documentation in PAGE


OF_NODES = ("InventoryComplete", "Missing", "GFDReady", "Degraded", "ReadyForPooling")
OF_CARDS = (
    EventReason.DEVICE_DETECTED,
    EventReason.DEVICE_MOVED,
    EventReason.DEVICE_REMOVED,
    EventReason.DEVICE_REPLACED,
    EventReason.NODE_FORGOTTEN,
    EventReason.READY_FOR_POOLING,
    EventReason.NOT_READY_FOR_POOLING,
)
GOOD = {Reason.INVENTORY_SYNCED, Reason.DRIVER_FOUND, Reason.TOOLKIT_FOUND, Reason.READY}
BAD_REASONS = [reason for reason in Reason if any(kind in reason.meaning for kind in OF_NODES) and reason not in GOOD]


@pytest.mark.parametrize("reason", [*BAD_REASONS, *OF_CARDS])
def test_every_reason_has_its_line(reason: str) -> None:
    assert f"`{reason}`" in PAGE
