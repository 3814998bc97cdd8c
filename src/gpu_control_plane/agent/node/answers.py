"""The agent's answer to its orders: what the kubelet has been told, what was checked, and what stands in the way."""

from collections.abc import Callable
from datetime import datetime

from msgspec import UNSET, UnsetType

from gpu_control_plane.agent.node.views import NodeAnswer, NodeShare, NodeState
from gpu_control_plane.api.gpunodestate import Plugin, Quiesced, Validation
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.events import EventRecorder


class Answers:
    """Keeps the agent's share of its GPUNodeState true; the same answer again costs no write."""

    def __init__(self, applier: Applier, events: EventRecorder, now: Callable[[], datetime]) -> None:
        self._applier = applier
        self._events = events
        self._now = now

    async def answer(
        self, state: NodeState, plugin: Plugin | None, validation: Validation | UnsetType | None, paused: str | None
    ) -> None:
        """Say it. What is None was not found out this time: what is there stays; what is UNSET goes.

        A node that was never ordered anything says so, too: from that others know that cards are handed out here, and
        bring no second plugin.
        """
        share = NodeShare(
            plugin=plugin or state.status.plugin or UNSET,
            validation=validation if validation is not None else state.status.validation or UNSET,
            quiesced=self._quiesced(state, paused),
        )
        await self._applier.apply(NodeState, state.name, NodeAnswer(share), state, subresource="status")
        if plugin is not None:
            self._tell(state, plugin)

    def _quiesced(self, state: NodeState, paused: str | None) -> Quiesced | UnsetType:
        if paused is None:
            return UNSET
        before = state.status.quiesced
        return before if before and before.reason == paused else Quiesced(since=self._now(), reason=paused)

    def _tell(self, state: NodeState, plugin: Plugin) -> None:
        """An Event for everything that has come up since the last answer."""
        before = state.status.plugin or Plugin(observed_generation=0)
        for problem in plugin.problems:
            if problem not in before.problems:
                note = f"{problem.inventory_id}: {problem.message}"
                self._events.warning(state, EventReason.ORDER_NOT_CARRIED_OUT, note)
        if plugin.conflicts and plugin.conflicts != before.conflicts:
            note = f"Another device plugin serves this node's cards: {', '.join(plugin.conflicts)}. Remove one of them."
            self._events.warning(state, EventReason.CONFLICTING_DEVICE_PLUGIN, note)
