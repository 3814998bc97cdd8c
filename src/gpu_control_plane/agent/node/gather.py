"""Gathers what one step decides on: the hardware, the kubelet's lists, and the objects about the node."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from gpu_control_plane.agent.kubelet.podresources import KubeletUnavailable
from gpu_control_plane.agent.mig.apply import Outcome, PartitionTask
from gpu_control_plane.agent.node.components import Components
from gpu_control_plane.agent.step import BurnInSnapshot, KubeletSnapshot, NodeMemory, NodeSnapshot, StepSettings
from gpu_control_plane.agent.views import DeviceView, NodeStateView, NodeView
from gpu_control_plane.kube.cache import Cache

_log = structlog.get_logger(component="agent.gather")


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows of the cluster: its own node, and the cards in it."""

    nodes: Cache[NodeView]
    states: Cache[NodeStateView]
    devices: Cache[DeviceView]


class Gatherer:
    """Makes snapshots of one node."""

    def __init__(
        self,
        views: Views,
        components: Components,
        settings: StepSettings,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._views = views
        self._components = components
        self._settings = settings
        self._now = now
        self._monotonic = monotonic

    async def gather(
        self, node: NodeView, memory: NodeMemory, partitioned: tuple[tuple[PartitionTask, Outcome], ...] = ()
    ) -> NodeSnapshot:
        """The node as it is now. The hardware is read only while the driver is held."""
        watch = self._components.watch
        hardware = watch.snapshot
        injectable: frozenset[str] = frozenset()
        burn_in = BurnInSnapshot()
        kubelet = await self._kubelet(memory) if hardware is not None else None
        if hardware is not None and not watch.released:
            described = await self._components.cdi_spec.describe(hardware)
            injectable = frozenset(device.name for device in described.devices)
            checked = self._components.validation.passed_driver_checks
            burn_in = await self._components.burn_in.observe(hardware, memory.tested, checked=checked)
        return NodeSnapshot(
            now=self._now(),
            monotonic=self._monotonic(),
            node=node,
            state=self._views.states.get(node.name),
            devices=tuple(self._views.devices),
            hardware=hardware,
            driver_hung=watch.hung,
            kubelet=kubelet,
            injectable=injectable,
            partitioned=partitioned,
            burn_in=burn_in,
            settings=self._settings,
        )

    async def _kubelet(self, memory: NodeMemory) -> KubeletSnapshot | None:
        """None while the kubelet does not answer. The order matters: what is in flight was not listed before."""
        pod_resources = self._components.pod_resources
        try:
            allocations = await pod_resources.list()
            allocatable = await pod_resources.allocatable()
        except KubeletUnavailable as error:
            _log.info("kubelet does not answer", why=str(error))
            return None
        allocator = self._components.allocator
        checkpoint = await asyncio.to_thread(self._components.checkpoint)
        recorded = tuple(allocator.recorded())
        uids = {hold.pod_uid for hold in memory.holds} | {entry.pod_uid for entry in (*(checkpoint or ()), *recorded)}
        return KubeletSnapshot(
            allocations=allocations,
            allocatable=allocatable,
            in_flight=allocator.in_flight(allocations),
            checkpoint=checkpoint,
            recorded_before=recorded,
            living=await asyncio.to_thread(self._components.pod_cgroups.living, uids),
        )
