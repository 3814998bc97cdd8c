"""Carries a decision out, one write after the other. A failure ends it: the next reconcile decides anew."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
)
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.finalizers import remove_finalizer
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.child_writer import BelongsToAnother, ChildWriter
from gpu_control_plane.ray.event_record import EventRecord, emit
from gpu_control_plane.ray.owned import OwnedService, RayPod, is_owned
from gpu_control_plane.ray.service import conditions
from gpu_control_plane.ray.service.actions import (
    Action,
    CreateCluster,
    Decision,
    Delete,
    Ensure,
    LabelHead,
    PatchCluster,
    RemoveFinalizer,
    WriteStatus,
)
from gpu_control_plane.ray.service.events import HEAD_LABEL, failed_to
from gpu_control_plane.ray.status_patch import write_status


class Executor:
    """Makes the writes, and records their Events."""

    def __init__(self, client: Client, writer: ChildWriter, events: EventRecorder, now: Callable[[], datetime]) -> None:
        self._client = client
        self._writer = writer
        self._events = events
        self._now = now

    async def carry_out(self, service: RayService, decision: Decision) -> list[Object]:
        """Make the writes in their order. Returns what was written, for caches that the client does not update."""
        written: list[Object] = []
        for action in decision.actions:
            if isinstance(action, WriteStatus):
                if await write_status(self._client, service, action.status) is not service:
                    for event in decision.events:
                        self._record(service, event)
                continue
            try:
                made = await self._write(service, action)
            except Conflict:
                raise
            except (ApiError, BelongsToAnother) as error:
                self._record_failure(service, action, error)
                if _keeps_status_back(action) and not isinstance(error, ServerError | TooManyRequests):
                    held = conditions.not_written(service, str(error), self._now())
                    await write_status(self._client, service, replace(service.status, conditions=held))
                raise
            if made is not None:
                written.append(made)
        return written

    async def _write(self, service: RayService, action: Action) -> Object | None:
        match action:
            case CreateCluster():
                await self._create(service, action)
                self._record(service, action.event)
            case PatchCluster():
                with suppress(NotFound):
                    await self._patch(action)
                    self._record(service, action.event)
            case Delete():
                with suppress(NotFound):
                    metadata = action.item.metadata
                    await self._client.delete(type(action.item), metadata.name, metadata.namespace, uid=metadata.uid)
                    self._record(service, action.event)
            case Ensure():
                made, changed = await self._ensure(action)
                if changed:
                    self._record(service, action.created if action.held is None else action.updated)
                    return made
            case LabelHead():
                with suppress(NotFound):
                    await self._label(action)
                    self._record(service, action.event)
            case RemoveFinalizer():
                await remove_finalizer(self._client, service, action.name)
        return None

    async def _ensure(self, action: Ensure) -> tuple[Object, bool]:
        kind, owner, manifest, held = action.kind, action.owner, action.manifest, action.held
        try:
            return await self._writer.ensure(kind, owner, manifest, held)
        except Invalid:
            if held is None or not action.replaceable:
                raise
            # Such as a change of clusterIP. The new one is tried first: if it would be refused, the old one stays.
            with suppress(AlreadyExists):
                await self._client.try_create(kind, manifest, held.metadata.namespace)
            await self._client.delete(kind, held.name, held.metadata.namespace, uid=held.metadata.uid)
            return await self._writer.ensure(kind, owner, manifest, None)

    async def _create(self, service: RayService, action: CreateCluster) -> None:
        namespace = service.metadata.namespace
        try:
            await self._client.create(RayCluster, action.manifest, namespace)
        except AlreadyExists:
            # It may be ours: the answer to the request that created it was lost.
            there = await self._client.get(RayCluster, action.manifest["metadata"]["name"], namespace)
            if not is_owned(there, service):
                raise BelongsToAnother(
                    f"RayCluster {there.name} is in the way of the next one of RayService {service.name}: delete it"
                ) from None

    async def _patch(self, action: PatchCluster) -> None:
        metadata = action.cluster.metadata
        # The uid keeps a later cluster of the same name from being changed.
        body = {**action.body, "metadata": {**action.body.get("metadata", {}), "uid": metadata.uid}}
        await self._client.patch(
            RayCluster,
            metadata.name,
            body,
            namespace=metadata.namespace,
            resource_version=metadata.resource_version if action.guarded else None,
        )

    async def _label(self, action: LabelHead) -> None:
        metadata = action.pod.metadata
        labels = {Label.SERVE.value: "true" if action.serves else "false"}
        body = {"metadata": {"uid": metadata.uid, "labels": labels}}
        await self._client.patch(RayPod, metadata.name, body, namespace=metadata.namespace)

    def _record(self, service: RayService, event: EventRecord | None) -> None:
        if event is not None:
            emit(self._events, service, event)

    def _record_failure(self, service: RayService, action: Action, error: Exception) -> None:
        match action:
            case CreateCluster():
                verb, what = "Create", RayCluster.resource.kind
            case PatchCluster():
                verb, what = "Update", RayCluster.resource.kind
            case Ensure():
                verb, what = "Create" if action.held is None else "Update", action.kind.resource.kind
            case Delete():
                verb, what = "Delete", action.item.resource.kind
            case LabelHead():
                verb, what = "Update", HEAD_LABEL
            case _:
                return
        self._events.warning(service, failed_to(verb, what), str(error), action=verb)


def _keeps_status_back(action: Action) -> bool:
    """Whether a failure keeps the status from being written: Services are written before it."""
    return isinstance(action, Ensure) and action.kind is OwnedService
