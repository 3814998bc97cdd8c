"""Writes the agent's part of GPUNodeState and GPUDevice: what the kubelet has been told, what was checked, what stands
in the way, and how each card is. The same status again costs no write."""

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import UNSET, UnsetType

from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.agent.step import DeviceReport, NodePlan, Notice
from gpu_control_plane.agent.views import DeviceView, NodeStateView, node_state_apply_configuration
from gpu_control_plane.api.gpunodestate import Plugin, Quiesced, Validation
from gpu_control_plane.api.names import Annotation, EventReason
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import EventRecorder


class StatusWriter:
    """Writes what plans say."""

    def __init__(
        self, applier: Applier, events: EventRecorder, metrics: AgentMetrics, now: Callable[[], datetime]
    ) -> None:
        self._applier = applier
        self._events = events
        self._metrics = metrics
        self._now = now

    async def write_node_state(
        self, state: NodeStateView, plan: NodePlan, validation: Validation | UnsetType | None = None
    ) -> None:
        """A part that is None was not found out this time and stays as it is; one that is UNSET is removed.

        A node without orders writes `plugin`, too: by that others know that an agent serves its cards, and deploy no
        second device plugin.
        """
        desired = node_state_apply_configuration(
            plugin=plan.plugin or state.status.plugin or UNSET,
            validation=validation if validation is not None else state.status.validation or UNSET,
            quiesced=self._quiesced(state, plan.paused),
        )
        await self._applier.apply(NodeStateView, state.name, desired, state, subresource="status")
        if plan.plugin is not None:
            self._record(state, plan.plugin)

    async def write_devices(self, reports: Iterable[DeviceReport]) -> None:
        for report in reports:
            try:
                await self._applier.apply(DeviceView, report.device.name, report.desired, None, subresource="status")
            except NotFound:
                continue  # It has just been deleted: the cache is about to show that.
            if report.new_fault is not None:
                self._metrics.faults.labels(report.new_fault).inc()

    def record_notices(self, notices: Iterable[tuple[DeviceView, Notice]]) -> None:
        for device, notice in notices:
            self._events.warning(device, notice.reason, notice.note, action="Probe")

    def _quiesced(self, state: NodeStateView, paused: str | None) -> Quiesced | UnsetType:
        if paused is None:
            return UNSET
        before = state.status.quiesced
        return before if before and before.reason == paused else Quiesced(since=self._now(), reason=paused)

    def _record(self, state: NodeStateView, plugin: Plugin) -> None:
        """An Event for every problem that is new since the last status."""
        before = state.status.plugin or Plugin(observed_generation=0)
        for problem in plugin.problems:
            if problem not in before.problems:
                note = f"{problem.inventory_id}: {problem.message}"
                self._events.warning(state, EventReason.ORDER_NOT_CARRIED_OUT, note)
        if plugin.conflicts and plugin.conflicts != before.conflicts:
            note = f"Another device plugin serves this node's cards: {', '.join(plugin.conflicts)}. Remove one of them."
            self._events.warning(state, EventReason.CONFLICTING_DEVICE_PLUGIN, note)


async def remove_clear_fault(client: Client, devices: Cache[DeviceView], repaired: Iterable[DeviceView]) -> None:
    """Take the annotation off cards whose faults were cleared, unless a person has written it anew since."""
    for device in repaired:
        known = devices.get(device.name)
        said = device.metadata.annotations[Annotation.CLEAR_FAULT]
        if known is None or known.metadata.annotations.get(Annotation.CLEAR_FAULT) != said:
            continue
        body = {"metadata": {"annotations": {str(Annotation.CLEAR_FAULT): None}}}
        await client.patch(DeviceView, device.name, body, resource_version=known.metadata.resource_version)
