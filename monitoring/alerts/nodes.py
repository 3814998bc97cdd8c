"""Nodes: what keeps their cards from being handed out."""

from typing import Final

from monitoring.alert import Alert, Group, LogLine, Severity
from monitoring.promql import WITHOUT_POOL, one_of

from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.bootstrap.metrics import Phase

_CHECK_FAILED: Final = LogLine("agent.node.validation_runner", "validation step failed")
_SEE: Final = "kubectl describe gpunodestate {{ $labels.node }}"
_INSTALLED: Final = "20m"
"""A driver that comes in a container is pulled and built within this time, and the toolkit waits for it."""


def _missing(condition: NodeCondition) -> str:
    return f'max by (node) (gpu_bootstrap_condition{{condition="{condition}"}}) == 1'


def _in_phase(phase: Phase) -> str:
    return f'max by (node) (gpu_bootstrap_node_phase{{phase="{phase}"}}) == 1'


_TOLD_APART: Final = one_of((NodeCondition.DRIVER_MISSING, NodeCondition.TOOLKIT_MISSING, NodeCondition.DEGRADED))
_NOT_READY: Final = (
    f"{_in_phase(Phase.VALIDATING)} unless on (node) "
    f'max by (node) (gpu_bootstrap_condition{{condition=~"{_TOLD_APART}"}}) == 1'
)
"""Nodes on which something stands between cards and pools that no other alert is about."""

NODES: Final = Group(
    "nodes",
    (
        Alert(
            name="GPUDriverMissing",
            expr=_missing(NodeCondition.DRIVER_MISSING),
            hold=_INSTALLED,
            severity=Severity.WARNING,
            summary="{{ $labels.node }} has cards and no working driver.",
            description="None of the cards of {{ $labels.node }} can be used. The condition DriverMissing says whether "
            f"there is no driver or it failed its check: {_SEE}",
            events=(
                EventReason.NOT_READY_FOR_POOLING,
                Reason.DRIVER_NOT_FOUND,
                Reason.VALIDATION_FAILED,
                Reason.VALIDATOR_NOT_PASSED,
            ),
            log=_CHECK_FAILED,
        ),
        Alert(
            name="GPUToolkitMissing",
            expr=f"{_missing(NodeCondition.TOOLKIT_MISSING)} unless on (node) {_missing(NodeCondition.DRIVER_MISSING)}",
            hold=_INSTALLED,
            severity=Severity.WARNING,
            summary="Containers on {{ $labels.node }} cannot be given a card.",
            description="The driver of {{ $labels.node }} works, but neither CDI nor a GPU runtime does. Usually "
            f"CDI is off in the container runtime. {_SEE}",
            events=(EventReason.NOT_READY_FOR_POOLING, Reason.TOOLKIT_NOT_FOUND, Reason.VALIDATION_FAILED),
            log=_CHECK_FAILED,
        ),
        Alert(
            name="GPUMonitoringMissing",
            expr=_in_phase(Phase.MONITORING),
            hold="30m",
            severity=Severity.INFO,
            summary="Nobody measures the cards of {{ $labels.node }}.",
            description="The cards of {{ $labels.node }} work and are handed out, but alerts on heat, memory and error "
            f"reports are blind there. {_SEE}",
            events=(Reason.MONITORING_NOT_FOUND, Reason.MONITORING_NOT_READY),
        ),
        Alert(
            name="GPUNodeDegraded",
            expr=_missing(NodeCondition.DEGRADED),
            hold="30m",
            severity=Severity.WARNING,
            summary="{{ $labels.node }} works, but not as it should.",
            description="Something gets in the way on {{ $labels.node }}: another device plugin, an agent that does "
            f"not work, or two programs that do the same. The condition Degraded says which: {_SEE}",
            events=(
                EventReason.CONFLICTING_DEVICE_PLUGIN,
                Reason.AGENT_NOT_READY,
                Reason.DRIVER_HUNG,
                Reason.DRIVER_RELEASED,
                Reason.DUPLICATE_SOURCE,
            ),
        ),
        Alert(
            name="GPUNodeNotReady",
            expr=_NOT_READY,
            hold="30m",
            severity=Severity.WARNING,
            summary="{{ $labels.node }} does not become ready.",
            description="All cards of {{ $labels.node }} are known, and driver and toolkit are there, but none of its "
            "cards joins a pool: a check failed, has not been made, or another device plugin has the cards. The "
            f"condition ReadyForPooling says which: {_SEE}",
            events=(EventReason.NOT_READY_FOR_POOLING,),
            log=_CHECK_FAILED,
        ),
        Alert(
            name="GPUInventoryIncomplete",
            expr=f'max by (node) (gpu_inventory_condition{{condition="{NodeCondition.INVENTORY_COMPLETE}"}}) == 0 '
            f"unless on (node) {_in_phase(Phase.NOT_MANAGED)}",
            hold="15m",
            severity=Severity.WARNING,
            summary="Not all cards of {{ $labels.node }} are known.",
            description="What the PCI bus of {{ $labels.node }} shows and what the node reports do not agree, so none "
            f"of its cards is handed out anew. The condition InventoryComplete says why: {_SEE}",
            events=(
                Reason.CARDS_MISSING,
                Reason.BUS_DISAGREES,
                Reason.BUS_HIDDEN,
                Reason.CARDS_ELSEWHERE,
                Reason.NO_DEVICES_DISCOVERED,
                Reason.NODE_FEATURE_MISSING,
                Reason.NODE_FEATURE_INVALID,
                Reason.NODE_GONE,
            ),
        ),
        Alert(
            name="GPUNodeWithoutPool",
            expr=WITHOUT_POOL,
            hold="1h",
            severity=Severity.INFO,
            summary="{{ $labels.node }} is ready, and none of its cards is in a pool.",
            description="The cards of {{ $labels.node }} are of use to nobody until somebody decides about them. "
            "status.pools.pending says what each waits for: approve them, or make a pool that selects them.",
            events=(EventReason.CARDS_WITHOUT_POOL,),
        ),
    ),
)
