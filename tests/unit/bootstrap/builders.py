"""Builds a GPU node as bootstrap sees it: everything in order, but for what a test changes."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import NOON, node_state
from gpu_control_plane.api.gpunodestate import AgentFunctions, StepResult, Validation, ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.node import Node, NodeFlag, NodeInfo, NodeSpec, NodeStatus
from gpu_control_plane.api.pod import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Terminated,
    Waiting,
)
from gpu_control_plane.bootstrap.operands import NVIDIA, OTHERS, OURS, Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.kube import Condition, ObjectMeta

NODE = "worker-3"
CARDS = 2
LONG_AGO = NOON - timedelta(hours=1)
JUST_NOW = NOON - timedelta(seconds=10)
STEPS = ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation")
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.count": str(CARDS),
    "nvidia.com/cuda.driver-version.full": "580.159.04",
    "gpu.deckhouse.io/gpu.present": "true",
}


def condition(kind: NodeCondition, status: bool, reason: Reason, message: str = "Written.") -> Condition:
    return Condition(
        type=kind.value, status=str(status), reason=reason.value, message=message, last_transition_time=LONG_AGO
    )


COMPLETE = condition(NodeCondition.INVENTORY_COMPLETE, True, Reason.INVENTORY_SYNCED)
READY = condition(NodeCondition.READY_FOR_POOLING, True, Reason.READY)
NEW = (COMPLETE,)
"""The conditions of a node that inventory has just found."""
NO_LABELS = AgentFunctions(labels=False, checks=True)
NO_CHECKS = AgentFunctions(labels=True, checks=False)
"""What an agent does that does not label its node, or does not check it."""


def state(**status: Any) -> GPUNodeState:
    """A node that is known to be ready, but for these fields of its status."""
    made = node_state(NODE, CARDS)
    changed = msgspec.structs.replace(made.status, **{"conditions": (COMPLETE, READY), **status})
    return msgspec.structs.replace(made, status=changed)


def checked(name: str, result: StepResult = StepResult.FAILED, message: str = "it does not answer") -> Validation:
    return Validation(steps=(ValidationStep(name=name, result=result, message=message),))


def node(labels: Mapping[str, str] = LABELS, *, ready: bool = True, cordoned: bool = False, kernel: str = "") -> Node:
    flags = (NodeFlag(type="Ready", status=str(ready)),)
    return Node(
        metadata=ObjectMeta(name=NODE, labels=dict(labels)),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(conditions=flags, node_info=NodeInfo(kernel_version=kernel)),
    )


def without(*names: str, **others: str) -> dict[str, str]:
    """The usual labels without these, or with others: dots of their names are written `_`."""
    kept = {key: value for key, value in LABELS.items() if key.removeprefix("nvidia.com/") not in names}
    return {**kept, **{f"nvidia.com/{name.replace('_', '.')}": value for name, value in others.items()}}


def pod(
    operand: Operand,
    *,
    ready: bool = True,
    since: datetime = LONG_AGO,
    crashed: datetime | None = None,
    waiting: str = "",
    step: str = "",
    over: bool = False,
    unscheduled: bool = False,
    suffix: str = "x1",
) -> Pod:
    """A pod of the node. `step` is the one that a validator is at; `crashed` is when a container ended last."""
    ours = operand in OURS.values()
    named = operand if ours else next(app for app, known in (NVIDIA | OTHERS).items() if known is operand)
    labels = {"app": str(named)} if operand in NVIDIA.values() else {"app.kubernetes.io/name": str(named)}
    if ours:
        labels = {"app.kubernetes.io/name": "gpu-control-plane", "app.kubernetes.io/component": str(named)}
    status = ContainerStatus(
        name="main",
        ready=ready,
        state=ContainerState(waiting=Waiting(reason=waiting) if waiting else None),
        last_state=ContainerState(terminated=Terminated(finished_at=crashed) if crashed else None),
    )
    done = STEPS[: STEPS.index(step)] if step else STEPS
    conditions = [PodCondition(type="Ready", status=str(ready), last_transition_time=since)]
    if unscheduled:
        conditions = [PodCondition(type="PodScheduled", status="False", last_transition_time=since)]
    return Pod(
        metadata=ObjectMeta(
            name=f"{named}-{suffix}",
            namespace="d8-gpu-operator" if ours else "gpu-operator",
            labels=labels,
            creation_timestamp=since,
            deletion_timestamp=NOON if over else None,
        ),
        spec=PodSpec(node_name="" if unscheduled else NODE),
        status=PodStatus(
            phase="Running" if ready else "Pending",
            conditions=tuple(conditions),
            container_statuses=(status,),
            init_container_statuses=tuple(ContainerStatus(name=name, ready=name in done) for name in STEPS)
            if step
            else (),
        ),
    )


AGENT = pod(Operand.AGENT)


def observed(**changes: Any) -> Snapshot:
    """The node at noon: its agent, which labels and checks it, and no other Pod."""
    usual: dict[str, Any] = {
        "state": state(),
        "node": node(),
        "pods": (AGENT,),
        "expected": frozenset({Operand.AGENT}),
        "now": NOON,
    }
    return Snapshot(**{**usual, **changes})
