"""One step of a node. `decide` is the only way to its decisions; an import contract keeps it so."""

from gpu_control_plane.agent.step.card_notices import Notice
from gpu_control_plane.agent.step.decide import decide
from gpu_control_plane.agent.step.holds import blocking_hold, recorded_holds
from gpu_control_plane.agent.step.plan import Allocatable, DeviceReport, NodePlan, Stage
from gpu_control_plane.agent.step.recovery import RECOVERY, RecoveryPolicy
from gpu_control_plane.agent.step.snapshot import (
    BurnInSnapshot,
    KubeletSnapshot,
    NodeMemory,
    NodeSnapshot,
    StepSettings,
)

__all__ = [
    "RECOVERY",
    "Allocatable",
    "BurnInSnapshot",
    "DeviceReport",
    "KubeletSnapshot",
    "NodeMemory",
    "NodePlan",
    "NodeSnapshot",
    "Notice",
    "RecoveryPolicy",
    "Stage",
    "StepSettings",
    "blocking_hold",
    "decide",
    "recorded_holds",
]
