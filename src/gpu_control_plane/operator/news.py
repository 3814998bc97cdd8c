"""What one part of the operator has to hear although it watches something else.

Labelling has to know on which nodes driver pods are, upgrades which nodes they govern, and the stack whether the
cluster knows ServiceMonitors.
"""

from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube import Cache, Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.crd import ESTABLISHED, CustomResourceDefinition
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.operator.node_facts import DRIVER
from gpu_control_plane.operator.stack.apply import Writer
from gpu_control_plane.operator.stack.live import LiveServiceMonitor
from gpu_control_plane.operator.upgrade.caches import is_driver
from gpu_control_plane.operator.views import OperandPod

_DRIVERS: Final = "operator/drivers"
_ALL: Final = Key("nodes")
_PAUSE: Final = 0.5
"""Seconds between two tellings: of many nodes that change at once upgrades hear once."""
_GOVERNING: Final = (NodeLabel.PRESENT, NodeLabel.OPERANDS, NodeLabel.WORKLOAD, DRIVER, NodeLabel.DRIVER_OWNER)
"""Labels by which a node gets its driver from the ClusterPolicy, from an NVIDIADriver, or from nobody here."""


class DriverPods:
    """On which nodes the stack has driver pods."""

    def __init__(self, runtime: Runtime, namespace: str) -> None:
        self._pods = runtime.cache(OperandPod, Selection(namespace=namespace))
        self._pods.index(_DRIVERS, _driven)

    def on(self, node: str) -> bool:
        return self._pods.count(_DRIVERS, node) > 0

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Call `tell(node)` whenever a driver pod there has come, changed or gone."""

        def changed(old: OperandPod | None, new: OperandPod | None) -> None:
            for node in {name for pod in (old, new) if pod is not None for name in _driven(pod)}:
                tell(node)

        self._pods.on_change(changed)


def follow_governed(runtime: Runtime, nodes: Cache[Node], tell: Callable[[], None]) -> None:
    """Call `tell` when nodes have come, gone, or get their driver from somebody else than before."""
    pace = RateLimit(_PAUSE)

    async def look(key: Key) -> Requeue | None:
        if later := pace.wait(key):
            return later
        pace.mark(key)
        tell()
        return None

    controller = runtime.controller("upgrade-owners", look, workers=1)
    controller.watch(nodes, lambda _node: (_ALL,), when=lambda old, new: _governing(old) != _governing(new))


def follow_monitors(runtime: Runtime, writer: Writer, tell: Callable[[], None]) -> None:
    """Let ServiceMonitors be written for as long as the cluster knows what they are; `tell` hears of that, and of
    every change of one."""
    resource = LiveServiceMonitor.resource
    definitions = runtime.cache(CustomResourceDefinition, Selection(fields=f"metadata.name={resource.qualified_name}"))

    async def look(key: Key) -> None:
        found = definitions.at(key)
        established = found.condition(ESTABLISHED) if found is not None and not found.deleting else None
        served = established is not None and established.status == "True"
        if served is writer.knows(resource.kind):
            return
        if served:
            await writer.follow(resource.kind, lambda _old, _new: tell())
        else:
            writer.unfollow(resource.kind)
        tell()

    runtime.controller("stack-monitors", look, workers=1).watch(definitions)


def calls(*tells: Callable[[], None]) -> Callable[..., None]:
    """One callback for several, whatever it is called with."""

    def tell(*_news: object) -> None:
        for each in tells:
            each()

    return tell


def _driven(pod: OperandPod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if is_driver(pod) and pod.spec.node_name else ()


def _governing(node: Node | None) -> tuple[str | None, ...] | None:
    return tuple(node.metadata.labels.get(label) for label in _GOVERNING) if node is not None else None
