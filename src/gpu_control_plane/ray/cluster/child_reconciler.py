"""Makes the objects beside the pods of a RayCluster be as they should be, and removes those that are not asked for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import AlreadyExists, ApiError, Invalid, NotFound, ServerError, TooManyRequests
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.child_writer import BelongsToAnother, ChildWriter, manifest_hash
from gpu_control_plane.ray.cluster.children import ApplyMode, Child, surplus_children
from gpu_control_plane.ray.cluster.events import ClusterEvent, created, failed_to_create, updated
from gpu_control_plane.ray.cluster.manifests import ClusterContext, claim_differences
from gpu_control_plane.ray.owned import OwnedClaim, OwnedService

CHILDREN: Final = "objects beside the pods"
"""What `Attempts` calls them."""

type Shown = Callable[[type[Object], str], Object | None]
"""The object of a kind and a name in the cluster's namespace, whosever it is, if a cache shows it."""


class ChildReconciler:
    """The one writer of the objects beside the pods of RayClusters."""

    def __init__(self, client: Client, writer: ChildWriter, events: EventRecorder) -> None:
        self._client = client
        self._writer = writer
        self._events = events
        self._told: dict[tuple[str, str, str], str] = {}
        """What was said last of an object that is left as it is."""
        self._applied: dict[tuple[str, str, str], str] = {}
        """Objects of kinds that are not watched, by the cluster's uid, kind and name: as what they were last
        written."""

    def clear(self) -> None:
        self._applied.clear()
        self._told.clear()

    def forget(self, uid: str) -> None:
        self._applied = {key: held for key, held in self._applied.items() if key[0] != uid}
        self._told = {key: note for key, note in self._told.items() if key[0] != uid}

    async def reconcile(
        self,
        cluster: RayCluster,
        children: Sequence[Child],
        held: Mapping[type[Object], Sequence[Object]],
        shown: Shown,
    ) -> tuple[str, str] | None:
        """Write what differs, in order; the first that the API server refuses ends it, and is answered as the reason
        of an Event and a sentence. `held` is what the cluster has made."""
        made: dict[str, list[str]] = {}
        changed: dict[str, list[str]] = {}
        try:
            for child in children:
                there = next((item for item in held.get(child.kind, ()) if item.name == child.name), None)
                try:
                    written = await self._ensure(cluster, child, there, shown, watched=child.kind in held)
                except BelongsToAnother as error:
                    return failed_to_create(child.kind.resource.kind), str(error)
                except ApiError as error:
                    if isinstance(error, ServerError | TooManyRequests):
                        raise
                    return failed_to_create(child.kind.resource.kind), _sentence(child, error)
                if written:
                    (changed if there is not None else made).setdefault(child.kind.resource.kind, []).append(child.name)
        finally:
            for kind, names in made.items():
                self._events.normal(cluster, created(kind), f"created {kind} {', '.join(names)}", action="Create")
            for kind, names in changed.items():
                self._events.normal(cluster, updated(kind), f"changed {kind} {', '.join(names)}", action="Update")
        return None

    async def remove_surplus(
        self,
        context: ClusterContext,
        children: Sequence[Child],
        held: Mapping[type[Object], Sequence[Object]],
        *,
        autoscaler_runs: bool,
    ) -> None:
        for item in surplus_children(context, children, held, autoscaler_runs=autoscaler_runs):
            metadata = item.metadata
            try:
                await self._client.delete(type(item), metadata.name, metadata.namespace, uid=metadata.uid)
            except NotFound:
                continue

    async def _ensure(
        self, cluster: RayCluster, child: Child, held: Object | None, shown: Shown, *, watched: bool
    ) -> bool:
        """Whether it was written."""
        if child.mode is ApplyMode.CREATE_ONLY and held is not None:
            return await self._let_stay(cluster, child, held)
        if child.mode is ApplyMode.CREATE_ONLY:
            return await self._make_once(cluster, child, shown)
        if not watched:
            return await self._ensure_unwatched(cluster, child)
        try:
            _, written = await self._writer.ensure(child.kind, cluster, child.manifest, held)
        except Invalid:
            if held is None or not isinstance(held, OwnedService):
                raise
            # Fields of a Service that cannot be changed, such as whether it has an address. Where it could not be made
            # anew either, the one that is there stays.
            with suppress(AlreadyExists):
                await self._client.try_create(child.kind, child.manifest, held.metadata.namespace)
            await self._client.delete(child.kind, held.name, held.metadata.namespace, uid=held.metadata.uid)
            _, written = await self._writer.ensure(child.kind, cluster, child.manifest, None)
        return written

    async def _make_once(self, cluster: RayCluster, child: Child, shown: Shown) -> bool:
        """One that is there is never written, also where the cache does not show it: pods have the token that is in
        it, and another one would shut them out."""
        # A volume that is kept beyond its cluster has no owner, and serves the next one of this name.
        may_be_another = child.kind is OwnedClaim
        if may_be_another and shown(child.kind, child.name) is not None:
            return False
        try:
            _, made = await self._writer.create_once(child.kind, cluster, child.manifest)
        except BelongsToAnother:
            if not may_be_another:
                raise
            return False
        return made

    async def _let_stay(self, cluster: RayCluster, child: Child, held: Object) -> bool:
        """Take the cluster off the owners of a volume that is to be kept beyond it, if that has been asked for since it
        was made; whether it was written."""
        self._tell_difference(cluster, child, held)
        if child.manifest["metadata"].get("ownerReferences"):
            return False
        metadata = held.metadata
        owners = [owner for owner in metadata.owner_references if owner.uid != cluster.metadata.uid]
        body = {"metadata": {"ownerReferences": msgspec.to_builtins(owners) or None}}
        version, namespace = metadata.resource_version, metadata.namespace
        await self._client.patch(child.kind, held.name, body, resource_version=version, namespace=namespace)
        return True

    def _tell_difference(self, cluster: RayCluster, child: Child, held: Object) -> None:
        differing = claim_differences(held, child.manifest) if isinstance(held, OwnedClaim) else []
        note = f"PersistentVolumeClaim {held.name} is left as it is: {'; '.join(differing)}" if differing else ""
        if note and self._told.get(_key(cluster, child)) != note:
            self._events.warning(cluster, ClusterEvent.CLAIM_DIFFERS, note, action="Validate")
        self._told[_key(cluster, child)] = note

    async def _ensure_unwatched(self, cluster: RayCluster, child: Child) -> bool:
        key = _key(cluster, child)
        digest = manifest_hash(child.manifest)
        if self._applied.get(key) == digest:
            return False
        _, written = await self._writer.ensure(child.kind, cluster, child.manifest, None)
        self._applied[key] = digest
        return written


def _key(cluster: RayCluster, child: Child) -> tuple[str, str, str]:
    return cluster.metadata.uid, child.kind.resource.kind, child.name


def _sentence(child: Child, error: ApiError) -> str:
    kind = child.kind.resource
    if isinstance(error, NotFound) and error.resource_missing:
        return f"{kind.kind} {child.name} could not be created: the cluster has no kind {kind.qualified_name}"
    return f"{kind.kind} {child.name} could not be written: {error.message}"
