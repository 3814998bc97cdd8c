"""What can be done about a RayService: each write of its own, safe to repeat, and decided before any is made."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.service import RayServiceStatus
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.owned import RayPod
from gpu_control_plane.ray.service.events import ServiceEvent

Manifest = dict[str, Any]


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What people are told by an Event, once it has been done."""

    reason: ServiceEvent
    note: str
    action: str = "Reconcile"
    warning: bool = False


class CreateCluster(msgspec.Struct, frozen=True, kw_only=True):
    manifest: Manifest
    event: EventRecord | None = None


class PatchCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A merge patch; one of the spec is made on the version that was read."""

    cluster: RayCluster
    body: Mapping[str, Any]
    event: EventRecord | None = None

    @property
    def guarded(self) -> bool:
        return "spec" in self.body


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """The very object that was read."""

    item: Object
    event: EventRecord | None = None


class Ensure(msgspec.Struct, frozen=True, kw_only=True):
    """A Service, Gateway or HTTPRoute as in the manifest."""

    kind: type[Object]
    manifest: Manifest
    held: Object | None
    owner: Object
    replaceable: bool = False
    """Whether it may be made anew where it cannot be changed: nobody's requests need its address."""
    created: EventRecord | None = None
    updated: EventRecord | None = None


class LabelHead(msgspec.Struct, frozen=True, kw_only=True):
    """Let requests go to the pod, or not."""

    pod: RayPod
    serves: bool
    event: EventRecord | None = None


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    status: RayServiceStatus


class RemoveFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    name: str


Action = CreateCluster | PatchCluster | Delete | Ensure | LabelHead | WriteStatus | RemoveFinalizer


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order, and when to look again although nothing changes."""

    actions: tuple[Action, ...] = ()
    events: tuple[EventRecord, ...] = ()
    """Events that go with the status: recorded when it has been written."""
    again_in: timedelta | None = None


def merged(patches: Iterable[PatchCluster]) -> tuple[PatchCluster, ...]:
    """One patch for each cluster."""
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
