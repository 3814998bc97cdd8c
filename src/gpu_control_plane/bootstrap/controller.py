"""Bootstrap as a controller: a GPUNodeState, its Node and its pods in, conditions out. One write for each change."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, feature_name
from gpu_control_plane.api.pod import BY_NODE, Pod, node_of
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.events import tell_changes
from gpu_control_plane.bootstrap.metrics import CONDITIONS, BootstrapMetrics
from gpu_control_plane.bootstrap.operands import OURS, POD_SELECTIONS, Operand, operand_of
from gpu_control_plane.bootstrap.snapshot import NOTHING, Remembered, Settings, Snapshot
from gpu_control_plane.kube import Cache, Condition, Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.rules.managed_nodes import ManagedNodes
from gpu_control_plane.rules.node_readiness import is_report_observed

MANAGER: Final = "gpu-bootstrap"

_DEFAULTS: Final = Settings()
_BY_OPERAND: Final = "bootstrap/operand"
_LABEL_PREFIX: Final = "nvidia.com/"


class _Conditions(msgspec.Struct):
    conditions: tuple[Condition, ...]


class _Body(msgspec.Struct):
    """The fields of a GPUNodeState that bootstrap owns."""

    status: _Conditions


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add bootstrap to a process."""
    states = runtime.cache(GPUNodeState)
    nodes = runtime.cache(Node)
    features = runtime.cache(NodeFeature, Selection(namespace=NAMESPACE))
    devices = runtime.cache(GPUDevice)
    all_pods = tuple(runtime.cache(Pod, selection) for selection in POD_SELECTIONS)
    for pods in all_pods:
        pods.index(BY_NODE, node_of)
    ours = all_pods[0]
    ours.index(_BY_OPERAND, _running_operand)
    metrics = BootstrapMetrics(runtime.metrics.registry)
    metrics.follow(states)
    applier = runtime.applier(MANAGER)
    remembered: dict[str, Remembered] = {}
    runtime.on_lead(remembered.clear)

    def expected() -> frozenset[Operand]:
        return frozenset(operand for operand in OURS.values() if ours.count(_BY_OPERAND, operand))

    def look(state: GPUNodeState) -> Snapshot:
        report = features.get(feature_name(state.name), NAMESPACE)
        return Snapshot(
            state=state,
            node=nodes.get(state.name),
            pods=tuple(pod for pods in all_pods for pod in pods.by_index(BY_NODE, state.name)),
            expected=expected(),
            report_observed=is_report_observed(state.status, report, devices.get),
            remembered=remembered.get(state.name, NOTHING),
            now=now(),
        )

    async def reconcile(key: Key) -> Requeue | None:
        state = states.at(key)
        if state is None or state.deleting:
            remembered.pop(key.name, None)
            return None
        decision = decide(look(state), settings)
        remembered[state.name] = decision.remember
        again = Requeue(after=decision.again_in.total_seconds()) if decision.again_in is not None else None
        if not decision.conditions:
            return again
        with metrics.handling(CONDITIONS):
            body = _Body(_Conditions(decision.conditions))
            written = await applier.apply(GPUNodeState, state.name, body, state, subresource="status")
        if written is not state:
            tell_changes(runtime.events, state, written)
        return again

    def gpu_node_of(pod: Pod) -> Iterable[Key]:
        """The node of an operand, if the node has cards."""
        node = pod.spec.node_name
        return (Key(node),) if operand_of(pod) is not None and states.get(node) is not None else ()

    controller = runtime.controller("bootstrap", reconcile)
    controller.watch(states, when=_state_matters)
    controller.watch(nodes, when=_node_matters(settings.managed))
    for pods in all_pods:
        controller.watch(pods, gpu_node_of, _pod_matters)

    def all_of_them() -> None:
        for state in states:
            controller.enqueue(state.key)

    _on_other(ours, expected, all_of_them)


def _on_other(pods: Cache[Pod], look: Callable[[], frozenset[Operand]], call: Callable[[], None]) -> None:
    """Call when the first pod of a program has come, or the last has gone: that concerns nodes without one."""
    held = look()

    def changed(_old: Pod | None, _new: Pod | None) -> None:
        nonlocal held
        before, held = held, look()
        if before != held:
            call()

    pods.on_change(changed)


def _state_matters(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    """Everything but the orders and most of the plugin's answers, which are most of the traffic."""
    if old is None or new is None:
        return True
    return _read(old) != _read(new)


def _read(state: GPUNodeState) -> tuple[object, ...]:
    status = state.status
    plugin = (status.plugin.conflicts, True) if status.plugin is not None else ((), False)
    software = status.driver, status.toolkit, status.monitoring, status.validation
    return status.observed_report, status.devices, *software, status.conditions, status.quiesced, plugin


def _node_matters(managed: ManagedNodes) -> Callable[[Node | None, Node | None], bool]:
    """Nodes report all the time; their labels about cards, their kernel, whether they are ready and whether they are
    managed change rarely."""

    def seen_of(node: Node) -> tuple[object, ...]:
        return node.ready, node.status.node_info, _labels(node), managed.include(node.metadata.labels)

    return lambda old, new: new is not None and (old is None or seen_of(old) != seen_of(new))


def _labels(node: Node) -> dict[str, str]:
    return {name: value for name, value in node.metadata.labels.items() if name.startswith(_LABEL_PREFIX)}


def _running_operand(pod: Pod) -> Iterable[str]:
    operand = operand_of(pod)
    return (operand,) if operand is not None and pod.active else ()


def _pod_matters(old: Pod | None, new: Pod | None) -> bool:
    if old is None or new is None:
        return True
    return (old.spec, old.status, old.deleting) != (new.spec, new.status, new.deleting)
