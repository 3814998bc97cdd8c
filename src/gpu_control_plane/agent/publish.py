"""Publishes what a node is: one NodeFeature for each, written when the hardware has changed and at no other time."""

import msgspec

from gpu_control_plane.agent.backends.interface import Inventory
from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.api.gpunodestate import Toolkit
from gpu_control_plane.api.nodefeature import (
    NODE_LABEL,
    NodeFeature,
    NodeFeatureSpec,
    feature_name,
    node_feature,
    read_facts,
)
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object, OwnerReference


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str]
    owner_references: tuple[OwnerReference, ...]


class Publication(msgspec.Struct, frozen=True):
    """A NodeFeature as the agent owns it. It goes with the Node: Kubernetes removes it when the Node is deleted."""

    metadata: _Metadata
    spec: NodeFeatureSpec


def publication(node: Object, spec: NodeFeatureSpec) -> Publication:
    """This about a node, as something that goes with it."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.metadata.uid)
    return Publication(metadata=_Metadata(labels={NODE_LABEL: node.name}, owner_references=(owner,)), spec=spec)


def says(observed: NodeFeature | None, desired: Publication) -> bool:
    """Whether the object already says exactly this: a fact that is gone counts as a difference too."""
    if observed is None:
        return False
    held = observed.metadata
    return (
        observed.spec == desired.spec
        and held.labels.get(NODE_LABEL) == desired.metadata.labels[NODE_LABEL]
        and held.owner_references == desired.metadata.owner_references
    )


class Publisher:
    """Keeps the NodeFeature of a node true."""

    def __init__(self, features: Cache[NodeFeature], applier: Applier, metrics: AgentMetrics, namespace: str) -> None:
        """Reports are published in `namespace`."""
        self._features = features
        self._applier = applier
        self._metrics = metrics
        self._namespace = namespace

    async def publish(self, node: Object, backend: Inventory) -> None:
        name = feature_name(node.name)
        desired = publication(node, node_feature(node.name, backend.facts(), backend.cards()))
        if says(self._features.get(name, self._namespace), desired):
            return
        await self._applier.apply(NodeFeature, name, desired, None, namespace=self._namespace)
        self._metrics.published.inc()

    def published_toolkit(self, node: str) -> Toolkit | None:
        """What the NodeFeature of a node says of its toolkit; None where it says nothing, or nonsense."""
        observed = self._features.get(feature_name(node), self._namespace)
        try:
            return read_facts(observed).toolkit if observed is not None else None
        except ValueError:
            return None
