"""The messages of the conditions: what is wrong, and what to type next."""

from datetime import timedelta

import pytest

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot, Timers
from gpu_control_plane.kube.conditions import find
from unit.bootstrap.builders import AGENT, LONG_AGO, NEW, NO_LABELS, checked, node, observed, pod, state, without

D, T, M, L, X, R = (
    NodeCondition.DRIVER_MISSING,
    NodeCondition.TOOLKIT_MISSING,
    NodeCondition.MONITORING_MISSING,
    NodeCondition.GFD_READY,
    NodeCondition.DEGRADED,
    NodeCondition.READY_FOR_POOLING,
)
OP = Operand
BARE = state(driver=None, toolkit=None, monitoring=None)
GONE = Timers(missing_since={Operand.AGENT: LONG_AGO})


def broken(operand: Operand, **changes: object) -> Snapshot:
    return observed(pods=(pod(operand, ready=False, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("snapshot", "kind", "words"),
    [
        (observed(state=BARE), D, ("Install it on the machine", "`nvidia-smi` must answer on worker-3")),
        (
            observed(state=BARE, node=node(kernel="6.8.0-60-generic")),
            D,
            ("Install it on the machine for its kernel 6.8.0-60-generic, or",),
        ),
        (observed(state=BARE), T, ("That needs the driver: install that first.",)),
        (observed(state=BARE), M, ("The agent exports them once there is a driver.",)),
        (
            observed(state=BARE, pods=(AGENT, pod(OP.NVIDIA_DRIVER))),
            D,
            ("nvidia-driver-daemonset-x1 is to bring it",),
        ),
        (
            observed(state=BARE, pods=(AGENT, pod(OP.NVIDIA_DRIVER, ready=False, crashed=NOON))),
            D,
            ("crashes again and again", "`kubectl -n gpu-operator logs nvidia-driver-daemonset-x1 --all-containers"),
        ),
        (
            observed(state=state(toolkit=None)),
            T,
            ("`python -m gpu_control_plane.agent.runtimes inspect` on worker-3",),
        ),
        (observed(state=state(validation=checked("cuda"))), R, ("The check of cuda failed: it does not answer",)),
        (
            observed(pods=(AGENT, pod(OP.NVIDIA_VALIDATOR, ready=False, step="driver-validation"))),
            D,
            ("step driver", "`kubectl -n gpu-operator logs nvidia-operator-validator-x1 -c driver-validation`"),
        ),
        (broken(OP.AGENT), R, ("pods keep their cards", "`kubectl -n d8-gpu-operator describe pod agent-x1`")),
        (broken(OP.AGENT, waiting="ErrImagePull"), R, ("cannot get its image",)),
        (broken(OP.AGENT, waiting="ImagePullBackOff"), R, ("cannot get its image",)),
        (
            broken(OP.AGENT, crashed=NOON),
            R,
            ("`kubectl -n d8-gpu-operator logs agent-x1 --all-containers --previous`",),
        ),
        (
            broken(OP.AGENT, crashed=LONG_AGO - timedelta(days=30)),
            R,
            ("does not become ready", "describe pod agent-x1`"),
        ),
        (broken(OP.AGENT, crashed=LONG_AGO - timedelta(seconds=1)), R, ("crashes again and again",)),
        (broken(OP.AGENT, unscheduled=True), R, ("cannot be scheduled",)),
        (
            observed(pods=(), timers=GONE),
            R,
            (
                "No agent pod runs",
                "describe daemonset gpu-control-plane-agent",
            ),
        ),
        (
            observed(pods=(), timers=GONE, node=node({})),
            R,
            (
                "none of the labels that bring the agent",
                "`kubectl label node worker-3 gpu.deckhouse.io/gpu.present=true`",
            ),
        ),
        (
            observed(pods=(), timers=GONE, node=node({"gpu.deckhouse.io/enabled": "false"})),
            R,
            ("gpu.deckhouse.io/enabled=false keeps", "`kubectl label node worker-3 gpu.deckhouse.io/enabled-`"),
        ),
        (
            observed(state=state(monitoring=None), pods=(AGENT, pod(OP.EXPORTER, ready=False))),
            M,
            ("Nothing exports metrics.", "`kubectl -n d8-gpu-operator describe pod dcgm-exporter-x1`"),
        ),
        (
            observed(state=state(agent=NO_LABELS), node=node(without("gpu.product"))),
            L,
            ("Pools do not need them.", "`agent.labels` of the chart to `auto`"),
        ),
        (
            observed(node=node(without(gpu_count="3"))),
            L,
            ("nvidia.com/gpu.count says 3, the node reports 2.", "`kubectl -n d8-gpu-operator logs agent-x1`"),
        ),
        (
            observed(pods=(AGENT, pod(OP.NVIDIA_EXPORTER), pod(OP.GFD))),
            X,
            (
                "metrics of the node: the agent and nvidia-dcgm-exporter in gpu-operator.",
                "labels of the Node: the agent and gpu-feature-discovery in d8-gpu-operator.",
            ),
        ),
        (
            observed(pods=(AGENT, pod(OP.OTHER_EXPORTER))),
            X,
            ("metrics of the node: the agent and NVIDIA dcgm-exporter in gpu-operator. Switch one off.",),
        ),
        (
            observed(pods=(AGENT, pod(OP.AGENT, suffix="x2"))),
            R,
            ("Two agents serve this node: agent-x1 and agent-x2.", "get pods agent-x1 agent-x2", "keep one."),
        ),
        (
            observed(state=state(conditions=NEW, validation=None)),
            R,
            ("not yet told what its checks of the node found: `kubectl -n d8-gpu-operator logs agent-x1`.",),
        ),
        (
            observed(state=state(conditions=NEW), node=node(ready=False), pods=(pod(OP.AGENT, ready=False),)),
            R,
            ("The kubelet of the node does not answer", "`kubectl describe node worker-3`"),
        ),
        (
            observed(pods=(AGENT, pod(OP.NVIDIA_PLUGIN))),
            X,
            (
                "the agent and nvidia-device-plugin-daemonset in gpu-operator",
                "`kubectl label node worker-3 nvidia.com/gpu.deploy.device-plugin=false --overwrite`",
            ),
        ),
    ],
)
def test_a_message_says_what_is_wrong_and_what_to_do(
    snapshot: Snapshot, kind: NodeCondition, words: tuple[str, ...]
) -> None:
    held = find(decide(snapshot).conditions, kind)
    assert held is not None
    for phrase in words:
        assert phrase in held.message


def test_the_message_about_a_pod_stays_the_same_while_it_is_started_again_and_again() -> None:
    """A pod that crashes or cannot get its image goes through several reasons all the time: each would be a write."""
    for reasons in (("ErrImagePull", "ImagePullBackOff"), ("CrashLoopBackOff", "")):
        messages = {
            message
            for reason in reasons
            if (held := find(decide(broken(OP.AGENT, waiting=reason, crashed=NOON)).conditions, R)) is not None
            for message in (held.message,)
        }
        assert len(messages) == 1
