"""What makes a node Degraded although its software is there: an agent that is away, two operands for one purpose."""

import msgspec

from gpu_control_plane.api.names import Label, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.bootstrap.operand_status import OperandStatus, OperandStatuses
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.providers import exporters, labellers, validators
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.rules.managed_nodes import has_gpu_label


class Degradation(msgspec.Struct, frozen=True):
    """Something that is wrong, and whether it keeps cards from joining pools."""

    reason: Reason
    message: str
    blocks: bool = False


def degradations(snapshot: Snapshot, operands: OperandStatuses) -> list[Degradation]:
    """All that is wrong, the gravest first."""
    found = (
        _agent_lost(snapshot, operands),
        _second_agent(operands),
        _other_plugin(snapshot, operands),
        _driver_hung(snapshot),
        _driver_released(snapshot),
        *_duplicate_sources(snapshot, operands),
    )
    return [one for one in found if one is not None]


def _agent_lost(snapshot: Snapshot, operands: OperandStatuses) -> Degradation | None:
    """Without its agent no pod gets a card of the node, and the last report may be old."""
    agent = operands.get(Operand.AGENT)
    if agent is None or not agent.lost:
        return None
    hint = _why_no_pod(snapshot.node, snapshot.namespace) if agent.pod is None and snapshot.node is not None else ""
    message = f"The agent of the node has been away for a while; pods keep their cards. {agent.trouble} {hint}"
    return Degradation(Reason.AGENT_NOT_READY, message.strip(), blocks=True)


def _why_no_pod(node: Node, namespace: str) -> str:
    if has_gpu_label(node.metadata.labels):
        return f"See why: `kubectl -n {namespace} describe daemonset gpu-control-plane-agent`."
    return (
        "The Node has none of the labels that bring the agent to it. If it has cards: "
        f"`kubectl label node {node.name} {Label.GPU_PRESENT}=true`."
    )


def _second_agent(operands: OperandStatuses) -> Degradation | None:
    """Of two agents the kubelet knows the one that registered last, and each reverts what the other writes."""
    agent = operands.get(Operand.AGENT)
    if agent is None or agent.pod is None or agent.second_pod is None:
        return None
    where, pods = agent.pod.metadata.namespace, f"{agent.pod.name} {agent.second_pod.name}"
    message = (
        f"Two agents serve this node: {agent.pod.name} and {agent.second_pod.name}. See who made them: `kubectl -n "
        f"{where} get pods {pods} -o custom-columns=POD:.metadata.name,"
        "OWNER:.metadata.ownerReferences[*].name`; keep one."
    )
    return Degradation(Reason.CONFLICTING_DEVICE_PLUGIN, message, blocks=True)


def _other_plugin(snapshot: Snapshot, operands: OperandStatuses) -> Degradation | None:
    """Another device plugin beside the agent's, known by the Node's resources or by its Pod."""
    plugin, reason = snapshot.state.status.plugin, Reason.CONFLICTING_DEVICE_PLUGIN
    if plugin is None:
        return None
    if plugin.conflicts:
        names = ", ".join(plugin.conflicts)
        message = f"Another device plugin serves cards of this node: {names}. Remove it from the node."
        return Degradation(reason, message, blocks=True)
    other = operands.get(Operand.NVIDIA_PLUGIN)
    if other is None:
        return None
    message = (
        f"Two device plugins serve this node: the agent and {_name(other)}. Keep one of them away from it: "
        f"`kubectl label node {snapshot.name} nvidia.com/gpu.deploy.device-plugin=false --overwrite` removes NVIDIA's."
    )
    return Degradation(reason, message, blocks=True)


def _driver_hung(snapshot: Snapshot) -> Degradation | None:
    plugin = snapshot.state.status.plugin
    if plugin is None or not plugin.driver_hung:
        return None
    message = (
        "A call into the driver does not return, so nothing is handed out; pods keep their cards. On the node, "
        "`dmesg | grep -i -e NVRM -e 'blocked for more than'` shows why. If it does not pass, drain the node, "
        f"`kubectl drain {snapshot.name} --ignore-daemonsets`, and restart it."
    )
    return Degradation(Reason.DRIVER_HUNG, message, blocks=True)


def _driver_released(snapshot: Snapshot) -> Degradation | None:
    quiesced = snapshot.state.status.quiesced
    if quiesced is None:
        return None
    message = (
        f"The agent has let go of the driver ({quiesced.reason}); nothing is handed out until that is over. "
        f"Which label asks for it: `kubectl get node {snapshot.name} --show-labels`."
    )
    return Degradation(Reason.DRIVER_RELEASED, message, blocks=True)


def _duplicate_sources(snapshot: Snapshot, operands: OperandStatuses) -> list[Degradation]:
    """Two sources of metrics, labels or checks. Cards work; but numbers are counted twice, and labels, or the files in
    which a validator leaves its results, may change to and fro."""
    provided = (
        ("metrics of the node", exporters(snapshot, operands)),
        ("labels of the Node", labellers(snapshot, operands)),
        ("checks of the node", validators(snapshot, operands)),
    )
    return [
        Degradation(
            Reason.DUPLICATE_SOURCE,
            f"Two programs provide the {what}: {' and '.join(_name(source) for source in sources)}. Switch one off.",
        )
        for what, sources in ((what, [one for one in sources if not one.lost]) for what, sources in provided)
        if len(sources) > 1
    ]


def _name(status: OperandStatus) -> str:
    if status.operand is Operand.AGENT:
        return "the agent"
    place = f" in {status.pod.metadata.namespace}" if status.pod is not None else ""
    return f"{status.operand}{place}"
