"""Brings whole objects into the cluster: creates what is missing, mends what differs, removes what is left over.

They are ours alone, so one that differs is replaced, at the version it was seen at; an addition by another hand does
not survive. Nothing is written where nothing differs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube import Cache, Client, Key, Runtime, Selection
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
)
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.operator.stack.drift import content_drifts, metadata_drifts, with_its_selector
from gpu_control_plane.operator.stack.live import (
    EVERYWHERE,
    SOMEWHERE,
    Live,
    LiveConfigMap,
    LiveDaemonSet,
    LiveRuntimeClass,
)
from gpu_control_plane.operator.stack.manifest import Manifest, on_delete
from gpu_control_plane.operator.stack.orphan_delete import finish, let_go, stands_still

_OURS: Final = str(PodLabel.OPERAND)
_AT_ONCE: Final = 16
_LETTING_GO: Final = "DaemonSets whose pods run on"
_LATE: Final = {"RoleBinding": 1, "ClusterRoleBinding": 1, "DaemonSet": 2}

_log = structlog.get_logger(component="operator.apply")


class NotWritten(KubeError):
    """Some objects were refused; the status says which, and it is tried again."""


class Applied(msgspec.Struct):
    """What bringing objects into the cluster came to."""

    created: list[str] = msgspec.field(default_factory=list)
    repaired: list[str] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    """Why an object could not be written, by `kind/name`."""


class Writer:
    """The one hand that writes the stack's objects, on caches of what is there."""

    def __init__(self, runtime: Runtime, namespace: str) -> None:
        self._client: Client = runtime.client
        self._namespace = namespace
        self._caches: dict[str, Cache[Any]] = {
            kind.resource.kind: runtime.cache(kind, self._selection(kind)) for kind in EVERYWHERE
        }
        self._rare = {kind.resource.kind: DynamicCaches(runtime.unfenced_client, kind) for kind in SOMEWHERE}
        self._kinds = {kind.resource.kind: kind for kind in (*EVERYWHERE, *SOMEWHERE)}
        self._inevitable: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._limit = asyncio.Semaphore(_AT_ONCE)
        for follower in self._rare.values():
            runtime.service(follower.run)

    def watched(self) -> Iterable[Cache[Any]]:
        """The caches whose changes may be drift."""
        return self._caches.values()

    async def follow(self, kind: str, on_change: Callable[[Live | None, Live | None], None]) -> None:
        """Watch a kind that this cluster has turned out to know. It counts as known once its objects have been seen:
        before that, each of them would look as if it were missing."""
        if kind not in self._caches:
            held = self._rare[kind].follow(kind, self._selection(self._kinds[kind]), on_change)
            await held.answered()
            self._caches[kind] = held

    def unfollow(self, kind: str) -> None:
        """The cluster has forgotten a kind, and with it all objects of the kind."""
        if self._caches.pop(kind, None) is not None:
            self._rare[kind].forget(kind)

    def knows(self, kind: str) -> bool:
        return kind in self._caches

    def live(self, kind: str, name: str) -> Live | None:
        found: Live | None = self._caches[kind].at(self._key(kind, name))
        return found

    def config_maps(self) -> Mapping[str, Mapping[str, str]]:
        """The ConfigMaps of the namespace that people made, with their keys of both kinds."""
        held: Cache[LiveConfigMap] = self._caches[LiveConfigMap.resource.kind]
        return {
            item.name: {**(item.data or {}), **(item.binary_data or {})}
            for item in held
            if _OURS not in item.metadata.labels
        }

    def held_variants(self) -> dict[str, str]:
        """The variant that each DaemonSet is for, by name."""
        held: Cache[LiveDaemonSet] = self._caches[LiveDaemonSet.resource.kind]
        word = str(PodLabel.VARIANT)
        return {item.name: item.metadata.labels[word] for item in held if word in item.metadata.labels}

    async def apply(self, manifests: Sequence[Manifest], applied: Applied) -> None:
        """Make objects be as they should. What cannot be written is told, and keeps nothing else from being written.

        Bindings come after roles, since nobody may bind what does not exist, and DaemonSets last: a pod that is made
        before its service account or its ConfigMap has to wait for long.
        """
        known = [manifest for manifest in manifests if self.knows(manifest["kind"])]
        for wave in sorted({_wave(manifest) for manifest in known}):
            await gather_all(
                self._guarded(_name(manifest), partial(self._bring, manifest, applied), applied)
                for manifest in known
                if _wave(manifest) == wave
            )

    async def prune(
        self,
        keep: set[tuple[str, str]],
        ours: Callable[[Live], bool],
        applied: Applied,
        *,
        orphan: Callable[[Live], bool] = lambda _live: False,
    ) -> None:
        """Remove the objects that `ours` claims, but for those to keep. Pods of an orphaned DaemonSet go on running.

        DaemonSets of another operator may select the pods of others, too. They go first, and if they do not go nothing
        does: they would adopt what the others leave behind, and remove it.
        """
        condemned = [
            item
            for kind, cache in self._caches.items()
            for item in cache
            if (kind, item.name) not in keep and not item.deleting and ours(item)
        ]
        first = [
            item for item in condemned if isinstance(item, LiveDaemonSet) and orphan(item) and _selects_others(item)
        ]
        if first or self._interrupted():
            await self._guarded(_LETTING_GO, partial(self._let_go, first, applied), applied)
        if _LETTING_GO in applied.problems:
            return
        await gather_all(
            self._guarded(_named(item), partial(self._discard, item, applied, orphan=orphan(item)), applied)
            for item in condemned
            if item not in first
        )

    async def finish(self) -> None:
        """Let go what an earlier process began to."""
        if self._interrupted():
            await finish(self._client, self._namespace)

    def _interrupted(self) -> bool:
        return any(map(stands_still, self._caches[LiveDaemonSet.resource.kind]))

    async def _let_go(self, daemonsets: Sequence[LiveDaemonSet], applied: Applied) -> None:
        await let_go(self._client, daemonsets, self._namespace)
        applied.removed += map(_named, daemonsets)

    async def _guarded(self, name: str, work: Callable[[], Awaitable[None]], applied: Applied) -> None:
        try:
            async with self._limit:
                await work()
        except* Conflict:
            raise
        except* ApiError as errors:
            applied.problems[name] = "; ".join(dict.fromkeys(map(str, errors.exceptions)))

    async def _bring(self, manifest: Manifest, applied: Applied) -> None:
        await self._write(manifest["kind"], manifest["metadata"]["name"], manifest, applied)

    async def _discard(self, live: Live, applied: Applied, *, orphan: bool) -> None:
        await self._remove(live, "Orphan" if orphan else "Background")
        applied.removed.append(_named(live))

    async def _write(self, kind: str, name: str, manifest: Manifest, applied: Applied) -> None:
        live = self.live(kind, name)
        if live is None:
            try:
                await self._client.create(self._kinds[kind], manifest, self._scope(kind))
            except AlreadyExists:
                # It is there without our label: another operator's, whose work is continued.
                live = await self._client.get(self._kinds[kind], name, self._scope(kind))
            else:
                applied.created.append(f"{kind}/{name}")
                return
        if await self._mend(kind, name, manifest, live):
            applied.repaired.append(f"{kind}/{name}")

    async def _mend(self, kind: str, name: str, manifest: Manifest, live: Live) -> bool:
        """Replace an object that differs; False if nothing had to be written, or nothing came of it."""
        manifest = with_its_selector(manifest, live)
        if not live.content or not self._differs(kind, name, manifest, live):
            if not metadata_drifts(manifest, live):
                return False
            fields = ("labels", "annotations", "ownerReferences")
            patch = {field: manifest["metadata"][field] for field in fields if field in manifest["metadata"]}
            await self._client.patch(
                type(live), name, {"metadata": patch}, namespace=self._scope(kind),
                resource_version=live.metadata.resource_version,
            )  # fmt: skip
            return True
        body = {**manifest, "metadata": _merged(manifest["metadata"], live)}
        version = live.metadata.resource_version
        try:
            written = await self._client.replace(
                type(live), name, body, resource_version=version, namespace=self._scope(kind)
            )
        except Invalid:
            if not await self._acceptable(kind, manifest):
                raise
            # Something that cannot change, such as a selector or a role reference: a new object takes its place.
            await self._remove(live, "Orphan" if on_delete(manifest.get("spec", {})) else "Background")
            await self._client.create(type(live), manifest, self._scope(kind))
            return True
        if content_drifts(manifest, written):
            self._inevitable[kind, name] = (_bytes(manifest), _bytes(written.body()))
            _log.info("the cluster adds to an object of the stack", kind=kind, name=name)
            return False
        return True

    def _differs(self, kind: str, name: str, manifest: Manifest, live: Live) -> bool:
        if not content_drifts(manifest, live):
            return False
        known = self._inevitable.get((kind, name))
        return known is None or known != (_bytes(manifest), _bytes(live.body()))

    async def _acceptable(self, kind: str, manifest: Manifest) -> bool:
        """Whether the API server would take the object if there were none of its name yet. If not, what is there is
        better than nothing."""
        resource = self._kinds[kind].resource
        call = Call(
            method="POST",
            path=resource.path(self._scope(kind)),
            verb="create",
            resource=resource.qualified_name,
            params={"dryRun": "All"},
            body=msgspec.json.encode(manifest),
        )
        try:
            await self._client.transport.send(call)
        except AlreadyExists:
            return True
        except Invalid:
            return False
        return True

    async def _remove(self, live: Live, propagation: str) -> None:
        meta = live.metadata
        try:
            await self._client.delete(type(live), live.name, meta.namespace, uid=meta.uid, propagation=propagation)
        except NotFound:
            return  # somebody was faster

    def _selection(self, kind: type[Live]) -> Selection:
        """Also what another operator has made for the policy: without our label, but to be removed like the rest. Only
        of what a whole cluster has many of, roles, none but ours are held."""
        if kind.resource.namespaced:
            return Selection(namespace=self._namespace)
        return Selection() if kind is LiveRuntimeClass else Selection(labels=_OURS)

    def _scope(self, kind: str) -> str | None:
        return self._namespace if self._kinds[kind].resource.namespaced else None

    def _key(self, kind: str, name: str) -> Key:
        return Key(name, self._scope(kind))


def _wave(manifest: Manifest) -> int:
    return _LATE.get(manifest["kind"], 0)


def _name(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _named(live: Live) -> str:
    return f"{live.resource.kind}/{live.name}"


def _merged(wanted: Manifest, live: Live) -> Manifest:
    """Our metadata over what others have put there."""
    held = live.metadata
    return {
        **wanted,
        "labels": {**held.labels, **wanted.get("labels", {})},
        "annotations": {**held.annotations, **wanted.get("annotations", {})},
        "finalizers": list(held.finalizers),
    }


def _selects_others(daemonset: LiveDaemonSet) -> bool:
    """Whether a DaemonSet finds pods by a label that others of its state have as well."""
    labels = daemonset.body().get("spec", {}).get("selector", {}).get("matchLabels", {})
    return PodLabel.VARIANT not in labels


def _bytes(content: Manifest) -> bytes:
    return msgspec.json.encode(content, order="deterministic")
