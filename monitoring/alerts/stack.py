"""The software stack: operands, labels of nodes, and driver upgrades."""

from typing import Final

from monitoring.alert import Alert, Group, LogLine, Severity
from monitoring.promql import led, one_of

from gpu_control_plane.api.nvidia.names import StackEvent, UpgradeState

_SEE: Final = "kubectl describe clusterpolicy"
_RESTING: Final = (UpgradeState.DONE, UpgradeState.REQUIRED, UpgradeState.FAILED, "unknown")
_PATIENT: Final = one_of((*_RESTING, UpgradeState.WAIT_FOR_JOBS_REQUIRED))
"""States in which a node may stay for long: it waits for its turn, for a person, or for jobs to end."""
_UPGRADE: Final = LogLine("operator.upgrade.executor", "driver upgrade")


def _nodes(what: str) -> str:
    return f"max by (state) {led(f'gpu_operator_state_nodes{{what="{what}"}}')}"


def _upgraded(matcher: str) -> str:
    return f"sum by (driver) {led(f'gpu_operator_upgrade_nodes{{{matcher}}}')}"


_AWAY: Final = f"({_nodes('desired')} - {_nodes('ready')})"
_FINISHED: Final = f"({_upgraded(f'state="{UpgradeState.DONE}"')} or {_upgraded('state=~".+"')} * 0)"
"""Nodes that are done. A state that no node is in has no series: the first node would not be noticed."""

STACK: Final = Group(
    "stack",
    (
        Alert(
            name="GPUStackFailed",
            expr=f"max {led('gpu_operator_reconciliation_status')} == -1",
            hold="10m",
            severity=Severity.WARNING,
            summary="The ClusterPolicy cannot be carried out.",
            description="Something in the ClusterPolicy makes no sense, or cannot be written. Operands that run go on "
            f"running. The condition Error says what is wrong: {_SEE}",
            events=(StackEvent.STATE_CHANGED,),
        ),
        Alert(
            name="GPUOperandNotReady",
            expr=f"max by (state) {led('gpu_operator_state_ready')} == 0",
            hold="15m",
            severity=Severity.WARNING,
            summary="{{ $labels.state }} of the software stack is not ready.",
            description="{{ $labels.state }} does not run everywhere it should. status.states names the nodes, each "
            f"with a reason: {_SEE}",
            events=(StackEvent.OPERAND_NOT_READY,),
        ),
        Alert(
            name="GPUOperandMissingOnManyNodes",
            expr=f"{_AWAY} / {_nodes('desired')} > 0.25 and {_AWAY} > 1",
            hold="15m",
            severity=Severity.CRITICAL,
            summary="{{ $labels.state }} is missing on {{ $value | humanizePercentage }} of its nodes.",
            description="{{ $labels.state }} fails on more than a quarter of the nodes, so it is not the fault of one "
            f"of them: look at its image, its configuration and what was changed last. {_SEE}",
            events=(StackEvent.OPERAND_NOT_READY,),
        ),
        Alert(
            name="GPUDriverUpgradeFailed",
            expr=f"{_upgraded(f'state="{UpgradeState.FAILED}"')} > 0",
            hold="1m",
            severity=Severity.WARNING,
            summary="The driver upgrade failed on {{ $value }} nodes ({{ $labels.driver }}).",
            description="These nodes stay cordoned, and others have their turn. Each says why in the annotation "
            "gpu.deckhouse.io/driver-upgrade-failure: "
            f"kubectl get nodes -l nvidia.com/gpu-driver-upgrade-state={UpgradeState.FAILED}",
            events=(StackEvent.DRIVER_UPGRADE,),
            log=_UPGRADE,
        ),
        Alert(
            name="GPUDriverUpgradeStuck",
            expr=f"{_upgraded(f'state!~"{_PATIENT}"')} > 0 unless on (driver) changes({_FINISHED}[30m:1m]) > 0",
            hold="90m",
            severity=Severity.WARNING,
            summary="The driver upgrade does not get on ({{ $labels.driver }}).",
            description="{{ $value }} nodes are being upgraded, and none has been finished for two hours. They are "
            "cordoned meanwhile. The Events of each node say what it waits for: "
            "kubectl get nodes -L nvidia.com/gpu-driver-upgrade-state",
            events=(StackEvent.DRIVER_UPGRADE,),
            log=_UPGRADE,
        ),
        Alert(
            name="GPUNodesUnlabelled",
            expr=f"max {led('gpu_operator_unlabelled_nodes')} > 0",
            hold="15m",
            severity=Severity.WARNING,
            summary="{{ $value }} nodes do not have the labels that bring operands to them.",
            description="The labels cannot be written, or somebody takes them away again. The condition Error of the "
            f"ClusterPolicy names the first nodes: {_SEE}",
            events=(StackEvent.STATE_CHANGED,),
        ),
        Alert(
            name="GPUHostDriverProblem",
            expr=f"max {led('gpu_operator_host_driver_problems')} > 0",
            hold="15m",
            severity=Severity.WARNING,
            summary="{{ $value }} nodes bring a driver that is too old or does not work.",
            description="No driver container comes to such a node, since it has a driver of its own. status.states of "
            f"the ClusterPolicy names it with the reason HostDriver and what is wrong: {_SEE}",
            events=(StackEvent.OPERAND_NOT_READY,),
        ),
    ),
)
