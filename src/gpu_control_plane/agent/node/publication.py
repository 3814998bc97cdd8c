"""Publishes the node as it is: its NodeFeature, and feature labels if they are switched on."""

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.node.components import Components
from gpu_control_plane.agent.node.labelling import Labeller
from gpu_control_plane.agent.node.options import Options
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.agent.runtime_record import edited_files
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import AgentFunctions, Monitoring, MonitoringSource, Toolkit
from gpu_control_plane.api.nodefeature import NodeFacts

_log = structlog.get_logger(component="agent.node.publication")


class NodePublisher:
    """Equal facts cost no write."""

    def __init__(
        self, options: Options, components: Components, publisher: Publisher, labeller: Labeller | None
    ) -> None:
        self._options = options
        self._components = components
        self._publisher = publisher
        self._labeller = labeller

    async def publish(self, node: NodeView, hardware: HardwareSnapshot, advertised: Iterable[Unit] | None) -> None:
        """Labels tell how cards are shared, so they wait until it has been decided what is advertised."""
        configured = await asyncio.to_thread(self._runtime_configured)
        facts = self._facts(node, hardware, runtime_configured=configured)
        await self._publisher.publish(node, _Described(hardware.cards(), facts))
        if self._labeller is not None and advertised is not None:
            await self._labeller.label(node, hardware, advertised)

    def _runtime_configured(self) -> bool | None:
        """Whether the container runtime's files hold entries of ours; None if the record of them is damaged."""
        try:
            return bool(edited_files(HostPaths(self._options.host).local(str(self._options.runtime_state))))
        except (ValueError, OSError) as error:
            _log.warning("what was written into the container runtime's files is not known", why=str(error))
            return None

    def _facts(self, node: NodeView, hardware: HardwareSnapshot, *, runtime_configured: bool | None) -> NodeFacts:
        """What the backend says, and what the agent itself does on this node."""
        facts = hardware.node_facts
        return msgspec.structs.replace(
            facts,
            toolkit=self._toolkit(node) if facts.driver else None,
            monitoring=Monitoring(source=MonitoringSource.AGENT) if facts.driver and self._options.exporter else None,
            agent=AgentFunctions(
                labels=self._options.labels,
                checks=self._options.validator,
                burn_in=self._options.burn_in,
                exporter=self._options.exporter,
                runtime_configured=runtime_configured,
            ),
        )

    def _toolkit(self, node: NodeView) -> Toolkit | None:
        """How containers are given cards, if they can be. Until that was tried, what was last published stays."""
        if not self._components.cdi_spec.tried:
            return self._publisher.published_toolkit(node.name)
        if self._components.cdi_spec.description is None:
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
