"""Writes whole objects: creates what is missing, replaces what differs, deletes what is not asked for any more.

The objects belong to this operator alone, so one that differs is replaced, at the version that was read: what another
writer added does not survive. Nothing is written where nothing differs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
)
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.operator.stack.drift import ComparedObjects, content_drifts, metadata_drifts, with_live_selector
from gpu_control_plane.operator.stack.live import Live, LiveDaemonSet
from gpu_control_plane.operator.stack.live_caches import LiveCaches
from gpu_control_plane.operator.stack.manifest import Manifest, on_delete
from gpu_control_plane.operator.stack.orphan_delete import (
    delete_and_orphan_pods,
    finish_orphan_deletes,
    held_for_orphaning,
)

_PARALLEL_WRITES: Final = 16
_ORPHANING: Final = "DaemonSets whose pods run on"
_WAVES: Final = {"RoleBinding": 1, "ClusterRoleBinding": 1, "DaemonSet": 2}
_METADATA: Final = ("labels", "annotations", "ownerReferences")

_log = structlog.get_logger(component="operator.apply")


class ObjectsRefused(KubeError):
    """The API server refused some objects. The status names them, and they are tried again."""


class ApplyResult(msgspec.Struct):
    """What was written; each object is named as `kind/name`."""

    created: list[str] = msgspec.field(default_factory=list)
    repaired: list[str] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    """Why an object could not be written."""


class ObjectWriter:
    """The only writer of the stack's objects. It compares them with the caches of what the cluster has."""

    def __init__(self, client: Client, live: LiveCaches) -> None:
        self.live = live
        self._client = client
        self._compared = ComparedObjects()
        self._unavoidable: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        """By kind and name, a manifest and the content that the API server makes of it although it differs."""
        self._limit = asyncio.Semaphore(_PARALLEL_WRITES)

    async def apply(self, manifests: Sequence[Manifest], result: ApplyResult) -> None:
        """Create and replace objects. One that cannot be written is reported, and does not keep the others from being
        written.

        Bindings come after roles, since only a role that exists can be bound. DaemonSets come last: a pod that is
        created before its service account or its ConfigMap is started only after a long back-off.
        """
        known = [manifest for manifest in manifests if self.live.knows(manifest["kind"])]
        for wave in sorted({_wave(manifest) for manifest in known}):
            await gather_all(
                self._guarded(_name(manifest), partial(self._write, manifest, result), result)
                for manifest in known
                if _wave(manifest) == wave
            )

    async def prune(
        self,
        keep: set[tuple[str, str]],
        ours: Callable[[Live], bool],
        result: ApplyResult,
        *,
        orphan: Callable[[Live], bool] = lambda _live: False,
    ) -> None:
        """Delete the objects that `ours` accepts, except those to keep. Pods of an orphaned DaemonSet run on.

        DaemonSets that NVIDIA's operator made may select each other's pods. They are deleted first, and if that fails
        nothing else is deleted: they would adopt the pods that other DaemonSets leave behind, and delete them.
        """
        outdated = [
            item
            for kind, cache in self.live.all()
            for item in cache
            if (kind, item.name) not in keep and not item.deleting and ours(item)
        ]
        first = [
            item for item in outdated if isinstance(item, LiveDaemonSet) and orphan(item) and _selects_others(item)
        ]
        if first or self._interrupted():
            await self._guarded(_ORPHANING, partial(self._orphan_together, first, result), result)
        if _ORPHANING in result.problems:
            return
        await gather_all(
            self._guarded(_named(item), partial(self._discard, item, result, orphan=orphan(item)), result)
            for item in outdated
            if item not in first
        )

    async def finish_interrupted(self) -> None:
        """Finish the deletion of DaemonSets that an earlier process has begun."""
        if self._interrupted():
            await finish_orphan_deletes(self._client, self.live.namespace)

    def _interrupted(self) -> bool:
        return any(map(held_for_orphaning, self.live.daemonsets()))

    async def _orphan_together(self, daemonsets: Sequence[LiveDaemonSet], result: ApplyResult) -> None:
        await delete_and_orphan_pods(self._client, daemonsets, self.live.namespace)
        result.removed += map(_named, daemonsets)

    async def _guarded(self, name: str, work: Callable[[], Awaitable[None]], result: ApplyResult) -> None:
        try:
            async with self._limit:
                await work()
        except* Conflict:
            raise
        except* ApiError as errors:
            result.problems[name] = "; ".join(dict.fromkeys(map(str, errors.exceptions)))

    async def _discard(self, live: Live, result: ApplyResult, *, orphan: bool) -> None:
        await self._delete(live, "Orphan" if orphan else "Background")
        result.removed.append(_named(live))

    async def _write(self, manifest: Manifest, result: ApplyResult) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live, scope = self.live.get(kind, name), self.live.scope(kind)
        if live is None:
            try:
                await self._client.create(self.live.kind(kind), manifest, scope)
            except AlreadyExists:
                # It exists without our label: NVIDIA's operator made it, and it is taken over.
                live = await self._client.get(self.live.kind(kind), name, scope)
            else:
                result.created.append(f"{kind}/{name}")
                return
        if not self._compared.unchanged(manifest, live) and await self._repair(manifest, live):
            result.repaired.append(f"{kind}/{name}")

    async def _repair(self, manifest: Manifest, live: Live) -> bool:
        """Replace an object that differs; False if nothing had to be written, or the write changed nothing."""
        rendered, manifest = manifest, with_live_selector(manifest, live)
        scope, version = self.live.scope(manifest["kind"]), live.metadata.resource_version
        if not live.content or not self._differs(manifest, live):
            if not metadata_drifts(manifest, live):
                self._compared.remember(rendered, live)
                return False
            patch = {field: manifest["metadata"][field] for field in _METADATA if field in manifest["metadata"]}
            await self._client.patch(
                type(live), live.name, {"metadata": patch}, namespace=scope, resource_version=version
            )
            return True
        body = {**manifest, "metadata": _merged(manifest["metadata"], live)}
        try:
            written = await self._client.replace(type(live), live.name, body, resource_version=version, namespace=scope)
        except Invalid:
            if not await self._valid(manifest):
                raise
            # Something that cannot be changed, such as a selector or a role reference: the object is created anew.
            await self._delete(live, "Orphan" if on_delete(manifest.get("spec", {})) else "Background")
            await self._client.create(type(live), manifest, scope)
            return True
        if content_drifts(manifest, written):
            self._unavoidable[_id(manifest)] = (_bytes(manifest), _bytes(written.body()))
            _log.info("API server adds fields to an object of the stack", kind=manifest["kind"], name=live.name)
            return False
        return True

    def _differs(self, manifest: Manifest, live: Live) -> bool:
        if not content_drifts(manifest, live):
            return False
        known = self._unavoidable.get(_id(manifest))
        return known is None or known != (_bytes(manifest), _bytes(live.body()))

    async def _valid(self, manifest: Manifest) -> bool:
        """Whether the API server would accept the object if none of its name existed. If not, the existing one
        stays."""
        kind = manifest["kind"]
        try:
            await self._client.try_create(self.live.kind(kind), manifest, self.live.scope(kind))
        except AlreadyExists:
            return True
        except Invalid:
            return False
        return True

    async def _delete(self, live: Live, propagation: str) -> None:
        """Delete an object as it was read: if it has changed, whether it is to be deleted is decided anew."""
        meta = live.metadata
        try:
            await self._client.delete(
                type(live),
                live.name,
                meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation=propagation,
            )
        except NotFound:
            return  # it was deleted meanwhile


def _wave(manifest: Manifest) -> int:
    return _WAVES.get(manifest["kind"], 0)


def _id(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _name(manifest: Manifest) -> str:
    return "/".join(_id(manifest))


def _named(live: Live) -> str:
    return f"{live.resource.kind}/{live.name}"


def _merged(wanted: Manifest, live: Live) -> Manifest:
    """Our metadata on top of what other writers have put there."""
    held = live.metadata
    return {
        **wanted,
        "labels": {**held.labels, **wanted.get("labels", {})},
        "annotations": {**held.annotations, **wanted.get("annotations", {})},
        "finalizers": list(held.finalizers),
    }


def _selects_others(daemonset: LiveDaemonSet) -> bool:
    """Whether a DaemonSet selects pods by a label that other DaemonSets of its state have as well."""
    labels = daemonset.body().get("spec", {}).get("selector", {}).get("matchLabels", {})
    return PodLabel.VARIANT not in labels


def _bytes(content: Manifest) -> bytes:
    return msgspec.json.encode(content, order="deterministic")
