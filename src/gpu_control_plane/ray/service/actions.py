"""The writes that a decision about a RayService consists of, each safe to repeat. All are decided beforehand."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.service import RayServiceStatus
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.owned import RayPod

Manifest = dict[str, Any]


class CreateCluster(msgspec.Struct, frozen=True, kw_only=True):
    manifest: Manifest
    event: EventRecord | None = None


class PatchCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A merge patch. One that changes the spec carries the resourceVersion that was read, so it fails on a conflict."""

    cluster: RayCluster
    body: Mapping[str, Any]
    event: EventRecord | None = None

    @property
    def guarded(self) -> bool:
        return "spec" in self.body


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Deletes the object with the uid that was read, and no later one of the same name."""

    item: Object
    event: EventRecord | None = None


class Ensure(msgspec.Struct, frozen=True, kw_only=True):
    """Creates or updates a Service, Gateway or HTTPRoute as in the manifest."""

    kind: type[Object]
    manifest: Manifest
    held: Object | None
    owner: Object
    replaceable: bool = False
    """Whether it may be created again if the API server refuses the update: no client depends on its address."""
    created: EventRecord | None = None
    updated: EventRecord | None = None


class LabelHead(msgspec.Struct, frozen=True, kw_only=True):
    """Sets the label by which the Service of Serve selects the head pod."""

    pod: RayPod
    serves: bool
    event: EventRecord | None = None


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    status: RayServiceStatus


class RemoveFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    name: str


Action = CreateCluster | PatchCluster | Delete | Ensure | LabelHead | WriteStatus | RemoveFinalizer


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, in this order, and when to reconcile again if no watch fires before."""

    actions: tuple[Action, ...] = ()
    events: tuple[EventRecord, ...] = ()
    """Events that belong to the status: recorded when it has been written."""
    again_in: timedelta | None = None


def merged(patches: Iterable[PatchCluster]) -> tuple[PatchCluster, ...]:
    """The patches, with those of one cluster merged into one."""
    found: dict[str, PatchCluster] = {}
    for patch in patches:
        held = found.get(patch.cluster.name)
        if held is None:
            found[patch.cluster.name] = patch
            continue
        annotations = {
            **held.body.get("metadata", {}).get("annotations", {}),
            **patch.body.get("metadata", {}).get("annotations", {}),
        }
        body = {**held.body, **patch.body, "metadata": {"annotations": annotations}}
        found[patch.cluster.name] = PatchCluster(cluster=held.cluster, body=body, event=held.event or patch.event)
    return tuple(found.values())
