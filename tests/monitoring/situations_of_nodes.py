"""Situations of nodes and pools."""

from typing import Final

from monitoring.situations import LEADER, Fired, Situation, lasting, led, stale


def _condition(condition: str, instance: str = "c1") -> str:
    return f'gpu_bootstrap_condition{{node="w1",condition="{condition}",instance="{instance}"}}'


def _phase(phase: str) -> str:
    return f'gpu_bootstrap_node_phase{{node="w1",phase="{phase}",instance="c1"}}'


def _leading(instance: str) -> str:
    return f'kube_leading{{lease="gpu-control-plane",instance="{instance}",job="gpu-control-plane-controller"}}'


_MISSING: Final = {
    "GPUDriverMissing": ("DriverMissing", 20),
    "GPUToolkitMissing": ("ToolkitMissing", 20),
    "GPUNodeDegraded": ("Degraded", 30),
}
NODES: Final = (
    *(
        situation
        for alert, (condition, hold) in _MISSING.items()
        for situation in (
            *lasting(alert, _condition(condition), hold=hold, fired=Fired({"node": "w1"})),
            Situation(
                alert=alert,
                name="something else is missing",
                series={_condition(other): "1x40" for other, _ in _MISSING.values() if other != condition},
                after=40,
            ),
        )
    ),
    Situation(
        alert="GPUDriverMissing",
        name="two replicas tell of one node",
        series={_condition("DriverMissing", "c1"): "1x20", _condition("DriverMissing", "c2"): "1x20"},
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUToolkitMissing",
        name="there is no driver: one alert is enough",
        series={_condition("DriverMissing"): "1x40", _condition("ToolkitMissing"): "1x40"},
        after=40,
    ),
    *lasting("GPUMonitoringMissing", _phase("Monitoring"), hold=30, fired=Fired({"node": "w1"})),
    Situation(
        alert="GPUMonitoringMissing",
        name="the cards do not work anyway, or are measured",
        series={
            _phase("Validating"): "1x40",
            _condition("DriverMissing"): "1x40",
            _condition("MonitoringMissing"): "1x40",
            'gpu_bootstrap_node_phase{node="w2",phase="Ready",instance="c1"}': "1x40",
        },
        after=40,
    ),
    *lasting("GPUNodeNotReady", _phase("Validating"), hold=30, fired=Fired({"node": "w1"})),
    Situation(
        alert="GPUNodeNotReady",
        name="metrics are missing as well, which holds nothing up",
        series={_phase("Validating"): "1x40", _condition("MonitoringMissing"): "1x40"},
        fires=(Fired({"node": "w1"}),),
    ),
    *(
        Situation(
            alert="GPUNodeNotReady",
            name=f"another alert says why: {trouble}",
            series={_phase("Validating"): "1x40", _condition(trouble): "1x40"},
            after=40,
        )
        for trouble in ("DriverMissing", "ToolkitMissing", "Degraded")
    ),
    *(
        Situation(alert="GPUNodeNotReady", name=f"the node is {phase}", series={_phase(phase): "1x40"}, after=40)
        for phase in ("Discovering", "Monitoring", "Ready", "NotManaged")
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="the node was taken out of service with its broken card",
        series={
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "0x40",
            _phase("NotManaged"): "1x40",
        },
        after=40,
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="a card is missing",
        series={'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "0x20"},
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="the node was deleted, and is forgotten when the grace period is over",
        series={
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "1x5 0x11 stale",
            'gpu_inventory_condition{node="w1",condition="Vanished",instance="c1"}': "_x5 1x11 stale",
        },
        after=40,
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="one replica has not heard of it yet",
        series={
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "1x30",
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c2"}': "0x30",
        },
        after=30,
    ),
    Situation(
        alert="GPUInventoryIncomplete",
        name="all is known, and the node is there",
        series={
            'gpu_inventory_condition{node="w1",condition="InventoryComplete",instance="c1"}': "1x20",
            'gpu_inventory_condition{node="w1",condition="Vanished",instance="c1"}': "0x20",
        },
        after=20,
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="no card is approved",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "4x90",
        },
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="one card of one, and no exporter on its node",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Monitoring",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "1x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "1x90",
            'gpu_inventory_devices_state{node="w1",state="Assigned",instance="c1"}': "0x90",
        },
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="the cards are gone, the node is not",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "0x90",
        },
        after=90,
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
        after=90,
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="one card is broken, and the others are not approved",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "3x90",
            'gpu_inventory_devices_state{node="w1",state="Faulted",instance="c1"}': "1x90",
        },
        fires=(Fired({"node": "w1"}),),
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="every card is broken, or there is no metric",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Faulted",instance="c1"}': "4x90",
            'gpu_bootstrap_node_phase{node="w2",phase="Ready",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w2",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w2",state="unknown",instance="c1"}': "4x90",
        },
        after=90,
    ),
    Situation(
        alert="GPUNodeWithoutPool",
        name="the node is not ready: no card can be approved",
        series={
            'gpu_bootstrap_node_phase{node="w1",phase="Validating",instance="c1"}': "1x90",
            'gpu_inventory_devices_total{node="w1",instance="c1"}': "4x90",
            'gpu_inventory_devices_state{node="w1",state="Unassigned",instance="c1"}': "4x90",
        },
        after=90,
    ),
)

POOLS: Final = (
    Situation(
        alert="GPUPoolCapacityLow",
        name="nine of a hundred are free, and a former leader saw more",
        series={
            **LEADER,
            led("gpupool_capacity_available", pool="a", resource="r"): "9x30",
            led("gpupool_capacity_total", pool="a", resource="r"): "100x30",
            stale("gpupool_capacity_available", pool="a", resource="r"): "50x30",
            stale("gpupool_capacity_total", pool="a", resource="r"): "100x30",
        },
        fires=(Fired({"pool": "a", "resource": "r"}, "9%"),),
    ),
    Situation(
        alert="GPUPoolCapacityLow",
        name="another replica leads, and the alert does not end",
        series={
            _leading("c1"): "1x25 0x40",
            _leading("c2"): "0x27 1x40",
            led("gpupool_capacity_available", pool="a", resource="r"): "0x40 stale",
            led("gpupool_capacity_total", pool="a", resource="r"): "8x40 stale",
            stale("gpupool_capacity_available", pool="a", resource="r"): "_x26 0x14 stale",
            stale("gpupool_capacity_total", pool="a", resource="r"): "_x26 8x14 stale",
        },
        until=37,
        after=70,
        fires=(Fired({"pool": "a", "resource": "r"}, "0%"),),
    ),
    Situation(
        alert="GPUPoolCapacityLow",
        name="a tenth is free, and an empty pool",
        series={
            **LEADER,
            led("gpupool_capacity_available", pool="a", resource="r"): "1x30",
            led("gpupool_capacity_total", pool="a", resource="r"): "10x30",
            led("gpupool_capacity_available", pool="empty", resource="r"): "0x30",
            led("gpupool_capacity_total", pool="empty", resource="r"): "0x30",
        },
        after=30,
    ),
    Situation(
        alert="GPUPoolCapacityLow",
        name="a former leader remembers a full pool",
        series={
            **LEADER,
            stale("gpupool_capacity_available", pool="a", resource="r"): "0x30",
            stale("gpupool_capacity_total", pool="a", resource="r"): "100x30",
            led("gpupool_capacity_available", pool="a", resource="r"): "4x30",
            led("gpupool_capacity_total", pool="a", resource="r"): "8x30",
        },
        after=30,
    ),
    *lasting(
        "GPUReservationExpired",
        led("gpupool_reservations_expired", pool="a"),
        hold=5,
        value="2",
        fired=Fired({"pool": "a"}, "2"),
    ),
    Situation(
        alert="GPUReservationExpired",
        name="a former leader remembers a pod that waited",
        series={
            **LEADER,
            led("gpupool_reservations_expired", pool="a"): "0x10",
            stale("gpupool_reservations_expired", pool="a"): "1x10",
        },
        after=10,
    ),
    *lasting(
        "GPUPoolMisconfigured",
        led("gpupool_phase", pool="a", phase="Misconfigured"),
        hold=5,
        fired=Fired({"pool": "a"}),
    ),
    Situation(
        alert="GPUPoolMaintenance",
        name="its deadline was ten minutes after the beginning",
        series={
            led("gpupool_maintenance_deadline_timestamp_seconds", pool="a"): "600x30",
            led("gpupool_maintenance_deadline_timestamp_seconds", pool="b"): "7200x30",
        },
        since=11,
        fires=(Fired({"pool": "a"}),),
    ),
    Situation(
        alert="GPUPoolMaintenance",
        name="it ended in time",
        series={led("gpupool_maintenance_deadline_timestamp_seconds", pool="a"): "600x9 stale"},
        after=20,
    ),
    Situation(
        alert="GPUPoolMisconfigured",
        name="a pool without cards",
        series={led("gpupool_phase", pool="a", phase="Pending"): "1x10"},
        after=10,
    ),
)
