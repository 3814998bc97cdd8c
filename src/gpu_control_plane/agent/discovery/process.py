"""Discovery as a process: one NodeFeature for this node, written only when the cards on the PCI bus have changed.

It needs no kubelet, no driver and no root, so it may run on every node of a cluster. `inventory` turns the NodeFeature
into the label that brings the agent to the node.
"""

from collections.abc import Iterable
from typing import Final

from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.discovery.bus import POLL_SECONDS, BusPoller
from gpu_control_plane.agent.publish import publication, says
from gpu_control_plane.agent.vendors.registry import pci_vendors
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, bus_feature, discovery_name
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.runtime import Runtime

NAME: Final = "gpu-discovery"


def build(runtime: Runtime, node: str, namespace: str, sysfs: Sysfs, *, interval: float = POLL_SECONDS) -> None:
    """Declare discovery for one node: both watches select this node alone. It publishes in `namespace`."""
    key, name = Key(node), discovery_name(node)
    nodes = runtime.cache(Node, Selection(fields=f"metadata.name={node}"))
    features = runtime.cache(NodeFeature, Selection(namespace, fields=f"metadata.name={name}"))
    applier = runtime.applier(NAME)

    def node_key(_item: Object) -> Iterable[Key]:
        return (key,)

    async def publish(_key: Key) -> None:
        owner = nodes.get(node)
        if owner is None or bus.cards is None:
            return
        desired = publication(owner, bus_feature(bus.cards))
        if not says(features.get(name, namespace), desired):
            await applier.apply(NodeFeature, name, desired, None, namespace=namespace)

    publishing = runtime.controller("discovery", publish, workers=1)
    publishing.watch(nodes, when=_is_other_node).watch(features, node_key)
    bus = BusPoller(sysfs, pci_vendors(), lambda: publishing.enqueue(key), interval)
    runtime.service(bus.run)
    runtime.status.alive("PCI bus", bus.problem)


def _is_other_node(old: Object | None, new: Object | None) -> bool:
    """A Node is updated all the time; only another Node of the same name matters here."""
    return old is None or new is None or old.metadata.uid != new.metadata.uid
