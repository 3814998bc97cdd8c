"""`gpu-inventory`: the whole fleet on one page, from how many cards there are to what keeps them from working."""

from typing import Final

from monitoring.grafana import Dashboard, Panel, PanelType, Query, Row, Unit, Variable
from monitoring.promql import CONTROLLER, WITHOUT_POOL, led, one_of, pool

from gpu_control_plane.bootstrap.conditions import GOOD_STATUS
from gpu_control_plane.kube.conditions import FALSE

_POOL: Final = 'pool=~"$pool"'
_TROUBLE: Final = f'condition=~"{one_of(kind for kind, good in GOOD_STATUS.items() if good == FALSE)}"'
"""The conditions that are trouble when they are true."""


def _count(title: str, expr: str, about: str, *, zero: bool = False, red_from: float | None = None) -> Panel:
    return Panel(
        title=title,
        queries=(Query(expr, title, zero=zero),),
        unit=Unit.COUNT,
        look=PanelType.NUMBER,
        width=4,
        height=4,
        about=about,
        red_from=red_from,
    )


FLEET: Final = Row(
    "Fleet",
    (
        _count("Cards", "sum(max by (vendor, product) (gpu_inventory_devices))", "Cards that have a GPUDevice."),
        _count("GPU nodes", "sum(max by (reason) (gpu_inventory_nodes))", "Nodes that have a GPUNodeState."),
        _count("Units in use", f"sum({pool('used')})", "Cards, MIG instances and time slices that pods have."),
        _count("Units free", f"sum({pool('available')})", "Units of pools that a pod could have now."),
        _count("Cards in no pool", f"max {led('gpu_device_unassigned_total')}", "Of use to nobody until approved."),
        _count(
            "Cards out of service",
            "count(max by (node, device) (gpu_device_faulted))",
            "Cards with a fault.",
            zero=True,
            red_from=1,
        ),
        Panel(
            title="Cards by model",
            about="Cards that have a GPUDevice, by product.",
            queries=(Query("max by (vendor, product) (gpu_inventory_devices)", "{{product}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Nodes by inventory",
            queries=(Query("max by (reason) (gpu_inventory_nodes)", "{{reason}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            about="By the reason of the condition InventoryComplete.",
        ),
        Panel(
            title="Nodes by readiness",
            queries=(Query("max by (reason) (gpu_bootstrap_nodes)", "{{reason}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            about="By the reason of the condition ReadyForPooling.",
            alerts=("GPUNodeNotReady",),
        ),
    ),
)

POOLS: Final = Row(
    "Pools",
    (
        Panel(
            title="Units in use, by resource",
            about="Units (cards, MIG instances or time slices) that pods have.",
            queries=(Query(pool("used", _POOL), "{{resource}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Share in use, by resource",
            queries=(Query(f"{pool('used', _POOL)} / {pool('total', _POOL)}", "{{resource}}"),),
            unit=Unit.SHARE,
            about="Of the units of the resource, whether their cards work or not.",
        ),
        Panel(
            title="Pools",
            about="Units of each resource of each pool; reserved ones are promised to pods that do not run yet.",
            alerts=("GPUPoolCapacityLow",),
            queries=tuple(
                Query(pool(capacity, _POOL), title)
                for capacity, title in (
                    ("total", "Units"),
                    ("used", "In use"),
                    ("reserved", "Reserved"),
                    ("available", "Free"),
                    ("faulted", "Faulted"),
                )
            ),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
    ),
)

TROUBLES: Final = Row(
    "What needs a person",
    (
        Panel(
            title="Which cards are out of service",
            about="Each with the reason of its condition Healthy.",
            alerts=("GPUCardFaulted",),
            queries=(Query("max by (node, device, reason) (gpu_device_faulted)", "Cards"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Nodes on which something is missing",
            queries=(Query(f"max by (node, condition) (gpu_bootstrap_condition{{{_TROUBLE}}})", "Nodes"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
            about="Only conditions that are trouble: a node on which all is well is not here.",
            alerts=("GPUDriverMissing", "GPUToolkitMissing", "GPUMonitoringMissing", "GPUNodeDegraded"),
        ),
        Panel(
            title="Nodes not all of whose cards are known",
            about="What their PCI bus shows and what they report do not agree.",
            alerts=("GPUInventoryIncomplete",),
            queries=(Query('max by (node) (gpu_inventory_condition{condition="InventoryComplete"}) == 0', "Complete"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Nodes without a pool",
            about="They are ready, and none of their cards is in a pool.",
            alerts=("GPUNodeWithoutPool",),
            queries=(Query(WITHOUT_POOL, "Nodes"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Pods that do not start although units were reserved for them",
            about="Something else than cards keeps them: CPU, memory, a volume, a toleration.",
            alerts=("GPUReservationExpired",),
            queries=(Query(f"max by (pool) (gpupool_reservations_expired{{{_POOL}}})", "{{pool}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Pools by phase",
            about="A pool that is Misconfigured, or its part on some nodes, hands out no cards; one in Maintenance "
            "takes no new pods while its cards are divided anew.",
            alerts=("GPUPoolMisconfigured", "GPUPoolMaintenance"),
            queries=(Query(f"max by (pool, phase) (gpupool_phase{{{_POOL}}})", "Pools"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Burn-in of new cards",
            about="Cards by the reason of their condition BurnedIn. Only where burn-in is on.",
            queries=(Query("max by (reason) (gpu_burn_in_devices)", "{{reason}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Which cards did not pass their burn-in",
            about="Each with what was found. They join no pool.",
            alerts=("GPUBurnInFailed",),
            queries=(Query("max by (node, device, reason) (gpu_device_burn_in_failed)", "Cards"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Cards found, exchanged and removed",
            about="By the reason of the Event about each.",
            queries=(Query("sum by (reason) (increase(gpu_inventory_changes_total[$__rate_interval]))", "{{reason}}"),),
            unit=Unit.COUNT,
        ),
    ),
)

STACK: Final = Row(
    "Software stack",
    (
        Panel(
            title="Nodes of each operand",
            queries=(
                Query(
                    "max by (state, what) " + led("gpu_operator_state_nodes"),
                    "{{state}} {{what}}",
                ),
            ),
            unit=Unit.COUNT,
            about="Those it should run on, and those it runs on. Only with a ClusterPolicy.",
        ),
        Panel(
            title="Operands that are not ready",
            about="States of the ClusterPolicy that do not run everywhere they should.",
            alerts=("GPUOperandNotReady", "GPUOperandMissingOnManyNodes", "GPUStackFailed"),
            queries=(Query(f"max by (state) {led('gpu_operator_state_ready')} == 0", "Ready"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="Nodes that the stack cannot serve",
            about="Without the labels that bring operands to them, or with a driver of their own that does not do.",
            alerts=("GPUNodesUnlabelled", "GPUHostDriverProblem"),
            queries=(
                Query(f"max {led('gpu_operator_unlabelled_nodes')}", "without labels"),
                Query(f"max {led('gpu_operator_host_driver_problems')}", "driver of the host"),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Driver upgrades",
            queries=tuple(
                Query(f"max {led(f'gpu_operator_nodes_upgrades_{name}')}", title)
                for name, title in (
                    ("pending", "waiting"),
                    ("in_progress", "under way"),
                    ("done", "done"),
                    ("failed", "failed"),
                )
            ),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            about="Nodes, by how far the upgrade of their driver has come.",
            alerts=("GPUDriverUpgradeFailed", "GPUDriverUpgradeStuck"),
        ),
    ),
)

OURSELVES: Final = Row(
    "The controllers themselves",
    (
        Panel(
            title="Reconciles",
            about="How often each controller looked at an object, by how that ended.",
            alerts=("GPUReconcilesFail",),
            queries=(
                Query(
                    "sum by (controller, result) "
                    f'(rate(kube_reconciles_total{{job="{CONTROLLER}"}}[$__rate_interval]))',
                    "{{controller}} {{result}}",
                ),
            ),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Time in the queue, 99th percentile",
            about="How long an object waits before a controller looks at it.",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (controller, le) "
                    f'(rate(kube_queue_seconds_bucket{{job="{CONTROLLER}"}}[$__rate_interval])))',
                    "{{controller}}",
                ),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Requests to the API server",
            about="By verb and answer; code 0 means that there was none.",
            queries=(
                Query(
                    f'sum by (verb, code) (rate(kube_api_requests_total{{job="{CONTROLLER}"}}[$__rate_interval]))',
                    "{{verb}} {{code}}",
                ),
            ),
            unit=Unit.PER_SECOND,
        ),
    ),
)

INVENTORY: Final = Dashboard(
    name="gpu-inventory",
    title="GPU / Inventory",
    about="Cards, nodes and pools of the cluster, and what needs a person.",
    rows=(FLEET, POOLS, TROUBLES, STACK, OURSELVES),
    variables=(Variable("pool", "gpupool_capacity_total", "pool", "Pool"),),
    links=("gpu-node", "gpu-workloads", "gpu-ray"),
)
