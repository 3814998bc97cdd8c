"""What the cluster is told about the node as it is: its NodeFeature, and labels if those are wanted."""

import msgspec

from gpu_control_plane.agent.node.labelling import Labeller
from gpu_control_plane.agent.node.offering import Offering
from gpu_control_plane.agent.node.options import Options
from gpu_control_plane.agent.node.parts import Parts
from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.views import LocalNode
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import Monitoring, MonitoringSource, Toolkit
from gpu_control_plane.api.nodefeature import NodeFacts


class Publication:
    """Keeps what is published true; equal facts cost no write."""

    def __init__(self, options: Options, parts: Parts, publisher: Publisher, labeller: Labeller | None) -> None:
        self._options = options
        self._parts = parts
        self._publisher = publisher
        self._labeller = labeller

    async def publish(self, node: LocalNode, picture: Picture, offering: Offering) -> None:
        """Say how it is. Labels tell how cards are shared, so they wait until that is known."""
        await self._publisher.publish(node, _Described(picture.cards(), self._facts(node, picture)))
        if self._labeller is not None and offering.begun:
            await self._labeller.label(node, picture, offering.units)

    def _facts(self, node: LocalNode, picture: Picture) -> NodeFacts:
        """What the backend says, and what the agent itself does on this node."""
        facts = picture.known_facts
        return msgspec.structs.replace(
            facts,
            toolkit=self._toolkit(node) if facts.driver else None,
            monitoring=Monitoring(source=MonitoringSource.AGENT) if facts.driver and self._options.exporter else None,
        )

    def _toolkit(self, node: LocalNode) -> Toolkit | None:
        """How containers are given cards, if they can be. Before that was tried, the last word on it stands."""
        if not self._parts.wardrobe.tried:
            return self._publisher.published_toolkit(node.name)
        if self._parts.wardrobe.description is None:
            return None
        runtime = node.status.node_info.container_runtime_version or None
        return Toolkit(injection=self._options.injection, runtime=runtime)


class _Described(msgspec.Struct, frozen=True):
    described: tuple[Hardware, ...]
    about: NodeFacts

    def facts(self) -> NodeFacts:
        return self.about

    def cards(self) -> tuple[Hardware, ...]:
        return self.described
