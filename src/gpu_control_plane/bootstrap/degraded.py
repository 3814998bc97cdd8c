"""What disturbs a node although its software is there: two programs for one purpose, an agent that is away."""

import msgspec

from gpu_control_plane.api.names import GPU_LABELS, Label, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE
from gpu_control_plane.bootstrap.functions import exporters, labellers, validators
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.bootstrap.standing import Standing, Standings


class Disturbance(msgspec.Struct, frozen=True):
    """Something that is wrong, and whether cards may join pools nevertheless."""

    reason: Reason
    message: str
    blocks: bool = False


def disturbances(seen: Snapshot, programs: Standings) -> list[Disturbance]:
    """What is wrong, the gravest first."""
    found = (
        _agent(seen, programs),
        _second_agent(programs),
        *_rivals(seen, programs),
        _released(seen),
        *_duplicates(seen, programs),
    )
    return [one for one in found if one is not None]


def _agent(seen: Snapshot, programs: Standings) -> Disturbance | None:
    """Without its agent nobody gets a card of the node, and what the node reports may be old."""
    agent = programs.get(Operand.AGENT)
    if agent is None or not agent.lost:
        return None
    hint = ""
    if agent.pod is None:
        hint = " " + (_where_it_runs(seen.node) if seen.node is not None else "")
    message = f"The agent of the node has been away for a while; pods keep their cards. {agent.trouble}{hint}"
    return Disturbance(Reason.AGENT_NOT_READY, message.strip(), blocks=True)


def _where_it_runs(node: Node) -> str:
    if any(node.metadata.labels.get(label) == "true" for label in GPU_LABELS):
        return f"See why: `kubectl -n {NAMESPACE} describe daemonset gpu-control-plane-agent`."
    return (
        "The Node has none of the labels that bring the agent to it. If it has cards: "
        f"`kubectl label node {node.name} {Label.GPU_PRESENT}=true`."
    )


def _second_agent(programs: Standings) -> Disturbance | None:
    """Of two agents the kubelet hears the one that spoke last, and each undoes what the other says."""
    agent = programs.get(Operand.AGENT)
    if agent is None or agent.pod is None or agent.twin is None:
        return None
    where = agent.pod.metadata.namespace
    message = (
        f"Two agents serve this node: {agent.pod.name} and {agent.twin.name}. See who made them: `kubectl -n {where} "
        f"get pods {agent.pod.name} {agent.twin.name} -o custom-columns=POD:.metadata.name,"
        "OWNER:.metadata.ownerReferences[*].name`; keep one."
    )
    return Disturbance(Reason.CONFLICTING_DEVICE_PLUGIN, message, blocks=True)


def _rivals(seen: Snapshot, programs: Standings) -> list[Disturbance]:
    """Another device plugin, as the Node's resources show it, or its pod."""
    plugin, reason = seen.state.status.plugin, Reason.CONFLICTING_DEVICE_PLUGIN
    if plugin is None:
        return []
    if plugin.conflicts:
        names = ", ".join(plugin.conflicts)
        message = f"Another device plugin serves cards of this node: {names}. Remove it from the node."
        return [Disturbance(reason, message, blocks=True)]
    pod = programs.get(Operand.NVIDIA_PLUGIN)
    if pod is None:
        return []
    message = (
        f"Two device plugins serve this node: the agent and {_pod(pod)}. Keep one of them away from it: "
        f"`kubectl label node {seen.name} nvidia.com/gpu.deploy.device-plugin=false --overwrite` removes NVIDIA's."
    )
    return [Disturbance(reason, message, blocks=True)]


def _released(seen: Snapshot) -> Disturbance | None:
    quiesced = seen.state.status.quiesced
    if quiesced is None:
        return None
    message = (
        f"The agent has let go of the driver ({quiesced.reason}); nothing is handed out until that is over. "
        f"Which label asks for it: `kubectl get node {seen.name} --show-labels`."
    )
    return Disturbance(Reason.DRIVER_RELEASED, message, blocks=True)


def _duplicates(seen: Snapshot, programs: Standings) -> list[Disturbance]:
    """Two sources of metrics, labels or checks. Cards work; but numbers are counted twice, labels may change to and
    fro, and so may the files that tell other programs of a check."""
    both = (
        ("metrics of the node", exporters(seen, programs)),
        ("labels of the Node", labellers(programs)),
        ("checks of the node", validators(seen, programs)),
    )
    return [
        Disturbance(
            Reason.DUPLICATE_SOURCE,
            f"Two programs provide the {what}: {' and '.join(_pod(source) for source in sources)}. Switch one off.",
        )
        for what, sources in ((what, [one for one in sources if not one.lost]) for what, sources in both)
        if len(sources) > 1
    ]


def _pod(standing: Standing) -> str:
    if standing.operand is Operand.AGENT:
        return "the agent"
    place = f" in {standing.pod.metadata.namespace}" if standing.pod is not None else ""
    return f"{standing.operand}{place}"
