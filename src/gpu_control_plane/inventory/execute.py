"""Carries a plan out: each action is one request, cards at the same time, the node after them."""

import asyncio
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpuapproval import ApprovalStatus, GPUApproval
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.events import record
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.inventory.plan import (
    CardWork,
    CarryOver,
    CreateNodeState,
    DeleteApproval,
    DeleteDevice,
    DeleteFeature,
    DeleteNodeState,
    DropApproval,
    NodeAction,
    Plan,
    WriteApprovalMessage,
    WriteDevice,
    WriteHardware,
    WriteNodeStatus,
)
from gpu_control_plane.kube import Client, EventRecorder, FieldManager, Object
from gpu_control_plane.kube.errors import KubeError, LeadershipLost, NotFound

MANAGER: Final = FieldManager("gpu-inventory")


class _Labels(msgspec.Struct):
    labels: dict[str, str]


class _DeviceApplyConfiguration(msgspec.Struct):
    metadata: _Labels
    spec: DeviceSpec


class _HardwareStatus(msgspec.Struct):
    hardware: Hardware


class _HardwareApplyConfiguration(msgspec.Struct):
    status: _HardwareStatus


class _NodeStatusApplyConfiguration(msgspec.Struct):
    status: NodeStateStatus


class _ApprovalStatusApplyConfiguration(msgspec.Struct):
    status: ApprovalStatus


class PlanExecutor:
    """Sends the writes of plans, a limited number at a time over all nodes."""

    def __init__(
        self, client: Client, recorder: EventRecorder, metrics: InventoryMetrics, *, writes_at_once: int
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._metrics = metrics
        self._slots = asyncio.Semaphore(writes_at_once)

    async def execute(self, plan: Plan) -> None:
        """Do all of it; the caches show it then. One card's failure holds up the node, not other cards."""
        failures: list[KubeError] = []
        async with asyncio.TaskGroup() as group:
            for work in plan.cards:
                group.create_task(self._chain(work, failures))
        if failures:
            raise min(failures, key=_urgency)
        for action in plan.node:
            async with self._slots:
                await self._change_node(action)

    async def _chain(self, work: CardWork, failures: list[KubeError]) -> None:
        try:
            for step in work.steps:
                await self._card(step)
        except KubeError as error:
            failures.append(error)

    async def _card(self, work: CardWork) -> None:
        latest = work.observed
        for action in work.actions:
            async with self._slots:
                if isinstance(action, DeleteDevice):
                    await self._delete(_newer(action.device, latest))
                    self._record(action.about, action)
                    continue
                if isinstance(action, DeleteApproval):
                    await self._delete(action.approval)
                    if action.overruled_by is not None:
                        record(self._recorder, action.overruled_by, action.event)
                    continue
                chained = work.observed is not None or isinstance(action, CarryOver)
                guard = latest.metadata.resource_version if latest is not None and chained else None
                latest = await self._change_card(action, guard)

    async def _change_card(
        self, action: DropApproval | CarryOver | WriteDevice | WriteHardware, guard: str | None
    ) -> GPUDevice:
        """One write about a card; with `guard` only if the object still has that resourceVersion."""
        match action:
            case DropApproval(device=device):
                dropped = (Annotation.ASSIGNMENT.value, Annotation.APPROVED_BY.value, Annotation.REASON.value)
                body: dict[str, object] = {"metadata": {"annotations": dict.fromkeys(dropped)}}
                version = guard or device.metadata.resource_version
                return await self._client.patch(GPUDevice, device.name, body, resource_version=version)
            case CarryOver(name=name, annotations=annotations, labels=labels):
                carried: dict[str, object] = {"metadata": {"annotations": annotations, "labels": labels}}
                return await self._client.patch(GPUDevice, name, carried, resource_version=guard)
            case WriteDevice(name=name, spec=spec, labels=labels):
                device_body = _DeviceApplyConfiguration(_Labels(labels), spec)
                return await self._client.apply(GPUDevice, name, device_body, manager=MANAGER, resource_version=guard)
            case WriteHardware(name=name, hardware=hardware):
                written = await self._client.apply(
                    GPUDevice,
                    name,
                    _HardwareApplyConfiguration(_HardwareStatus(hardware)),
                    manager=MANAGER,
                    subresource="status",
                    resource_version=guard,
                )
                self._record(written, action)
                return written

    async def _change_node(self, action: NodeAction) -> None:
        match action:
            case CreateNodeState(name=name):
                await self._client.apply(GPUNodeState, name, {}, manager=MANAGER)
            case WriteNodeStatus(name=name, status=status):
                body = _NodeStatusApplyConfiguration(status)
                written = await self._client.apply(GPUNodeState, name, body, manager=MANAGER, subresource="status")
                record(self._recorder, written, action.event)
            case DeleteNodeState(state=state):
                await self._delete(state)
                record(self._recorder, state, action.event)
            case DeleteFeature(feature=feature):
                await self._delete(feature)
            case WriteApprovalMessage(name=name, message=message):
                told = _ApprovalStatusApplyConfiguration(ApprovalStatus(message=message))
                await self._client.apply(GPUApproval, name, told, manager=MANAGER, subresource="status")

    async def _delete(self, doomed: GPUDevice | GPUNodeState | NodeFeature | GPUApproval) -> None:
        """Delete exactly what was decided on: an object that has changed since may be a card that was given to a pool,
        or a node that reports again. One that is already gone is no error."""
        kind: type[Object] = type(doomed)
        meta = doomed.metadata
        try:
            await self._client.delete(
                kind, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotFound:
            return

    def _record(self, about: GPUDevice | GPUNodeState, action: WriteHardware | DeleteDevice) -> None:
        record(self._recorder, about, action.event)
        if action.event is not None:
            self._metrics.changes.labels(action.event.reason).inc()


def _newer(device: GPUDevice, written: GPUDevice | None) -> GPUDevice:
    """The device as it is after our own writes, if there were any."""
    return written if written is not None and written.metadata.uid == device.metadata.uid else device


def _urgency(error: KubeError) -> tuple[bool, str]:
    """Which of several failures to report: lost leadership, else always the same one, so that its text is stable."""
    return not isinstance(error, LeadershipLost), str(error)
