"""Situations of nodes and pools."""

from typing import Final

from monitoring.situations import LEADER, Fired, Situation, lasting, led, stale


def _condition(condition: str, instance: str = "c1") -> str:
    return f'gpu_bootstrap_condition{{node="w1",condition="{condition}",instance="{instance}"}}'


_MISSING: Final = {
    "GPUDriverMissing": ("DriverMissing", 15, 5),
    "GPUToolkitMissing": ("ToolkitMissing", 15, 5),
    "GPUMonitoringMissing": ("MonitoringMissing", 40, 20),
    "GPUNodeDegraded": ("Degraded", 40, 20),
}
NODES: Final = (
    *(
        situation
        for alert, (condition, long, short) in _MISSING.items()
        for situation in (
            *lasting(alert, _condition(condition), long=long, short=short, fired=Fired({"node": "w1"})),
            Situation(
                alert=alert,
                name="something else is missing",
                series={_condition(other): f"1x{long}" for other, _, _ in _MISSING.values() if other != condition},
                after=long,
            ),
        )
    ),
    Situation(
        alert="GPUDriverMissing",
        name="two replicas tell of one node",
        series={_condition("DriverMissing", "c1"): "1x20", _condition("DriverMissing", "c2"): "1x20"},
        after=15,
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="a card is missing",
        series={'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "0x20"},
        after=15,
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="all is known, and the node is there",
        series={
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "1x20",
            'gpu_inventory_condition{node="w1",condition="Vanished",instance="c1"}': "0x20",
        },
        after=15,
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="nobody has decided",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "4x90",
        },
        after=80,
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="one card is in a pool",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "3x90",
            'gpu_inventory_devices_state{node="w1",state="Assigned",instance="c1"}': "1x90",
        },
        after=80,
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="the node is not ready: nobody could decide",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Validating",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "4x90",
        },
        after=80,
    ),
)

POOLS: Final = (
    Situation(
        alert="GPUPoolCapacityLow",
        name="all in use",
        series={
            **LEADER,
            led("gpupool_capacity_available", pool="a"): "0x30",
            led("gpupool_capacity_total", pool="a"): "8x30",
        },
        after=20,
        fires=(Fired({"pool": "a"}, "0%"),),
    ),
    Situation(
        alert="GPUPoolCapacityLow",
        name="a tenth is free, and an empty pool",
        series={
            **LEADER,
            led("gpupool_capacity_available", pool="a"): "1x30",
            led("gpupool_capacity_total", pool="a"): "10x30",
            led("gpupool_capacity_available", pool="empty"): "0x30",
            led("gpupool_capacity_total", pool="empty"): "0x30",
        },
        after=20,
    ),
    Situation(
        alert="GPUPoolCapacityLow",
        name="a former leader remembers a full pool",
        series={
            **LEADER,
            stale("gpupool_capacity_available", pool="a"): "0x30",
            stale("gpupool_capacity_total", pool="a"): "100x30",
            led("gpupool_capacity_available", pool="a"): "4x30",
            led("gpupool_capacity_total", pool="a"): "8x30",
        },
        after=20,
    ),
    *lasting(
        "GPUPoolMisconfigured",
        led("gpupool_phase", pool="a", phase="Misconfigured"),
        long=10,
        short=3,
        fired=Fired({"pool": "a"}),
    ),
    Situation(
        alert="GPUPoolMisconfigured",
        name="a pool without cards",
        series={led("gpupool_phase", pool="a", phase="Pending"): "1x10"},
        after=10,
    ),
)
