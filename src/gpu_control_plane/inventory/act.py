"""Carrying a plan out: each action is one request, cards at the same time, the node after them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

import msgspec
import structlog

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.echoes import Echoes
from gpu_control_plane.inventory.events import tell
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.inventory.plan import (
    CardWork,
    CarryOver,
    CreateNodeState,
    DeleteDevice,
    DeleteFeature,
    DeleteNodeState,
    DropApproval,
    NodeAction,
    Plan,
    WriteDevice,
    WriteHardware,
    WriteNodeStatus,
)
from gpu_control_plane.kube import Client, EventRecorder, FieldManager, Object
from gpu_control_plane.kube.errors import KubeError, LeadershipLost, NotFound

MANAGER: Final = FieldManager("gpu-inventory")

_ECHO_LIMIT: Final = 5.0
_Echo = Callable[[], Coroutine[None, None, None]]
_log = structlog.get_logger(component="inventory")


class _Labels(msgspec.Struct):
    labels: dict[str, str]


class _DeviceBody(msgspec.Struct):
    metadata: _Labels
    spec: DeviceSpec


class _HardwareShare(msgspec.Struct):
    hardware: Hardware


class _HardwareBody(msgspec.Struct):
    status: _HardwareShare


class _NodeStatusBody(msgspec.Struct):
    status: NodeStateStatus


class Actor:
    """Inventory's hands."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        metrics: InventoryMetrics,
        *,
        features: Echoes[NodeFeature],
        devices: Echoes[GPUDevice],
        states: Echoes[GPUNodeState],
        writes_at_once: int,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._metrics = metrics
        self._features = features
        self._devices = devices
        self._states = states
        self._slots = asyncio.Semaphore(writes_at_once)

    async def carry_out(self, plan: Plan) -> None:
        """Do all of it and return when the caches show it. One card's failure holds up the node, not other cards."""
        echoes: list[_Echo] = []
        failures: list[KubeError] = []
        try:
            async with asyncio.TaskGroup() as group:
                for work in plan.cards:
                    group.create_task(self._chain(work, echoes, failures))
            if failures:
                raise min(failures, key=_urgency)
            for action in plan.node:
                async with self._slots:
                    echoes.append(await self._change_node(action))
        finally:
            await _heard(echoes)

    async def _chain(self, work: CardWork, echoes: list[_Echo], failures: list[KubeError]) -> None:
        try:
            for step in work.steps:
                await self._card(step, echoes)
        except KubeError as error:
            failures.append(error)

    async def _card(self, work: CardWork, echoes: list[_Echo]) -> None:
        latest = work.observed
        for action in work.actions:
            async with self._slots:
                if isinstance(action, DeleteDevice):
                    echoes.append(await self._remove(action))
                    continue
                chained = work.observed is not None or isinstance(action, CarryOver)
                guard = latest.metadata.resource_version if latest is not None and chained else None
                latest = await self._change_card(action, guard)
                echoes.append(partial(self._devices.of, latest))

    async def _change_card(
        self, action: DropApproval | CarryOver | WriteDevice | WriteHardware, guard: str | None
    ) -> GPUDevice:
        """One write about a card; with `guard` only if the object still has that version."""
        match action:
            case DropApproval(device=device):
                gone: dict[str, object] = {"metadata": {"annotations": {Annotation.ASSIGNMENT.value: None}}}
                version = guard or device.metadata.resource_version
                return await self._client.patch(GPUDevice, device.name, gone, resource_version=version)
            case CarryOver(name=name, annotations=annotations, labels=said):
                marks: dict[str, object] = {"metadata": {"annotations": annotations, "labels": said}}
                return await self._client.patch(GPUDevice, name, marks, resource_version=guard)
            case WriteDevice(name=name, spec=spec, labels=labels):
                body = _DeviceBody(_Labels(labels), spec)
                return await self._client.apply(GPUDevice, name, body, manager=MANAGER, resource_version=guard)
            case WriteHardware(name=name, hardware=hardware):
                written = await self._client.apply(
                    GPUDevice,
                    name,
                    _HardwareBody(_HardwareShare(hardware)),
                    manager=MANAGER,
                    subresource="status",
                    resource_version=guard,
                )
                self._tell(written, action)
                return written

    async def _remove(self, action: DeleteDevice) -> _Echo:
        await self._delete(action.device)
        self._tell(action.about, action)
        return partial(self._devices.of_deletion, action.device)

    async def _change_node(self, action: NodeAction) -> _Echo:
        match action:
            case CreateNodeState(name=name):
                return partial(self._states.of, await self._client.apply(GPUNodeState, name, {}, manager=MANAGER))
            case WriteNodeStatus(name=name, status=status):
                body = _NodeStatusBody(status)
                written = await self._client.apply(GPUNodeState, name, body, manager=MANAGER, subresource="status")
                tell(self._recorder, written, action.tell)
                return partial(self._states.of, written)
            case DeleteNodeState(state=state):
                await self._delete(state)
                tell(self._recorder, state, action.tell)
                return partial(self._states.of_deletion, state)
            case DeleteFeature(feature=feature):
                await self._delete(feature)
                return partial(self._features.of_deletion, feature)

    async def _delete(self, doomed: GPUDevice | GPUNodeState | NodeFeature) -> None:
        """Delete exactly the object that was read; one that is gone already is no trouble."""
        kind: type[Object] = type(doomed)
        try:
            await self._client.delete(kind, doomed.name, doomed.metadata.namespace, uid=doomed.metadata.uid)
        except NotFound:
            return

    def _tell(self, about: GPUDevice | GPUNodeState, action: WriteHardware | DeleteDevice) -> None:
        tell(self._recorder, about, action.tell)
        if action.tell is not None:
            self._metrics.changes.labels(action.tell.reason).inc()


def _urgency(error: KubeError) -> tuple[bool, str]:
    """Which of several failures to report: lost leadership, else always the same one, so that its text is stable."""
    return not isinstance(error, LeadershipLost), str(error)


async def _heard(echoes: list[_Echo]) -> None:
    try:
        async with asyncio.timeout(_ECHO_LIMIT), asyncio.TaskGroup() as group:
            for echo in echoes:
                group.create_task(echo())
    except TimeoutError:
        _log.warning("the watch is slower than our writes", waited=_ECHO_LIMIT)
