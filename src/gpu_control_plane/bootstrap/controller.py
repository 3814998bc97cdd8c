"""Bootstrap as a controller: it reads GPUNodeStates, Nodes and Pods, and writes conditions, all of a node at once."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name
from gpu_control_plane.api.pod import BY_NODE, Pod, node_of
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.events import record_changes
from gpu_control_plane.bootstrap.metrics import CONDITIONS, BootstrapMetrics
from gpu_control_plane.bootstrap.operands import OURS, Operand, is_trusted, operand_of, pod_selections
from gpu_control_plane.bootstrap.snapshot import NO_TIMERS, Settings, Snapshot, Timers
from gpu_control_plane.kube import Cache, Condition, Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.rules.managed_nodes import ManagedNodes
from gpu_control_plane.rules.node_readiness import is_report_observed
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

MANAGER: Final = "gpu-bootstrap"

_DEFAULTS: Final = Settings()
_BY_OPERAND: Final = "bootstrap/operand"
_LABEL_PREFIX: Final = "nvidia.com/"


class _ConditionsStatus(msgspec.Struct):
    conditions: tuple[Condition, ...]


class _ConditionsApplyConfiguration(msgspec.Struct):
    """The fields of a GPUNodeState that bootstrap owns."""

    status: _ConditionsStatus


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add bootstrap to a process."""
    namespace = settings.trusted.own
    states = runtime.cache(GPUNodeState)
    nodes = runtime.cache(Node)
    features = runtime.cache(NodeFeature, Selection(namespace=namespace))
    devices = runtime.cache(GPUDevice)
    all_pods = tuple(runtime.cache(Pod, selection) for selection in pod_selections(namespace))
    for pods in all_pods:
        pods.index(BY_NODE, node_of)
    ours = all_pods[0]
    ours.index(_BY_OPERAND, lambda pod: _running_operand(pod, settings.trusted))
    metrics = BootstrapMetrics(runtime.metrics.registry)
    metrics.follow(states)
    applier = runtime.applier(MANAGER)
    timers: dict[str, Timers] = {}
    runtime.on_lead(timers.clear)

    def expected() -> frozenset[Operand]:
        return frozenset(operand for operand in OURS.values() if ours.count(_BY_OPERAND, operand))

    def take_snapshot(state: GPUNodeState) -> Snapshot:
        report = features.get(feature_name(state.name), namespace)
        return Snapshot(
            state=state,
            node=nodes.get(state.name),
            pods=tuple(
                pod
                for pods in all_pods
                for pod in pods.by_index(BY_NODE, state.name)
                if is_trusted(pod, settings.trusted)
            ),
            expected=expected(),
            report_observed=is_report_observed(state.status, report, devices.get),
            timers=timers.get(state.name, NO_TIMERS),
            namespace=namespace,
            now=now(),
        )

    async def reconcile(key: Key) -> Requeue | None:
        state = states.at(key)
        if state is None or state.deleting:
            timers.pop(key.name, None)
            return None
        decision = decide(take_snapshot(state), settings)
        timers[state.name] = decision.timers
        again = Requeue(after=decision.again_in.total_seconds()) if decision.again_in is not None else None
        if not decision.conditions:
            return again
        with metrics.handling(CONDITIONS):
            body = _ConditionsApplyConfiguration(_ConditionsStatus(decision.conditions))
            written = await applier.apply(GPUNodeState, state.name, body, state, subresource="status")
        if written is not state:
            record_changes(runtime.events, state, written)
        return again

    def gpu_node_of(pod: Pod) -> Iterable[Key]:
        """The node of an operand, if it is a GPU node."""
        node = pod.spec.node_name
        counts = operand_of(pod, namespace) is not None and is_trusted(pod, settings.trusted)
        return (Key(node),) if counts and states.get(node) is not None else ()

    controller = runtime.controller("bootstrap", reconcile)
    controller.watch(states, when=_state_changed)
    controller.watch(nodes, when=_node_changed(settings.managed))
    for pods in all_pods:
        controller.watch(pods, gpu_node_of, _pod_changed)

    def enqueue_all() -> None:
        for state in states:
            controller.enqueue(state.key)

    _on_expected_change(ours, expected, enqueue_all)


def _on_expected_change(pods: Cache[Pod], expected: Callable[[], frozenset[Operand]], call: Callable[[], None]) -> None:
    """Call when the first Pod of an operand has come, or the last has gone: that concerns nodes without one."""
    held = expected()

    def changed(_old: Pod | None, _new: Pod | None) -> None:
        nonlocal held
        before, held = held, expected()
        if before != held:
            call()

    pods.on_change(changed)


def _state_changed(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    """Whether a field that bootstrap reads has changed; assignments and most of the plugin's status have not to do with
    it, and are most of the traffic."""
    if old is None or new is None:
        return True
    return _fields_read(old) != _fields_read(new)


def _fields_read(state: GPUNodeState) -> tuple[object, ...]:
    status = state.status
    plugin = (status.plugin.conflicts, status.plugin.driver_hung) if status.plugin is not None else None
    software = status.driver, status.toolkit, status.monitoring, status.agent, status.validation
    return status.observed_report, status.devices, *software, status.conditions, status.quiesced, plugin


def _node_changed(managed: ManagedNodes) -> Callable[[Node | None, Node | None], bool]:
    """A Node's status changes all the time; its labels about cards, its kernel, and whether it is ready and managed
    change rarely."""

    def fields_read(node: Node) -> tuple[object, ...]:
        return node.ready, node.status.node_info, _labels(node), managed.include(node.metadata.labels)

    return lambda old, new: new is not None and (old is None or fields_read(old) != fields_read(new))


def _labels(node: Node) -> dict[str, str]:
    return {name: value for name, value in node.metadata.labels.items() if name.startswith(_LABEL_PREFIX)}


def _running_operand(pod: Pod, trusted: TrustedNamespaces) -> Iterable[str]:
    operand = operand_of(pod, trusted.own)
    return (operand,) if operand is not None and pod.active and is_trusted(pod, trusted) else ()


def _pod_changed(old: Pod | None, new: Pod | None) -> bool:
    if old is None or new is None:
        return True
    return (old.spec, old.status, old.deleting) != (new.spec, new.status, new.deleting)
