"""The ResourceClaimTemplates that pods of RayClusters are given cards from: they say how many GPUs a pod has.

They are watched in a namespace as soon as a cluster there names one, and until none does: few clusters use them, and
not every API server has the kind.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.cluster import GroupSpec, RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.objects import Key, Object, Resource
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.rules.ray.gpus import NO_CLAIMS, Claims, claim_templates
from gpu_control_plane.rules.ray.templates import Template, read_template


class ResourceClaimTemplate(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
    spec: dict[str, Any] = {}


class ClaimView(msgspec.Struct, frozen=True, kw_only=True):
    """The templates that a cluster names."""

    specs: Claims = NO_CLAIMS
    """What those that exist ask for."""
    missing: Mapping[str, str] = {}
    """Of each group that names one that does not exist, its name: a pod made now would not know its GPUs, and could not
    start either."""


NONE: Final = ClaimView()


class ClaimTemplates:
    """What clusters need to know of templates."""

    def __init__(self, client: Client) -> None:
        self._caches = DynamicCaches(client, ResourceClaimTemplate)
        self._users: dict[str, set[Key]] = defaultdict(set)
        self.changed = Signal("ray-claim-templates")
        """Fires the keys of the clusters in whose namespace a template has changed."""

    async def run(self) -> None:
        """Follow them until cancelled; a service for `Runtime.service`."""
        await self._caches.run()

    def of(self, cluster: RayCluster) -> ClaimView | None:
        """The templates of a cluster; None while they are not known yet."""
        named = _named(cluster)
        if not named:
            self.forget(cluster.key)
            return NONE
        namespace = cluster.metadata.namespace or ""
        users = self._users[namespace]
        users.add(cluster.key)
        cache = self._caches.follow(
            namespace, Selection(namespace=namespace), lambda _old, _new: self.changed.fire(*users)
        )
        if not cache.is_synced:
            return NONE if isinstance(cache.watch_error, NotFound | Forbidden) else None
        held = {name: cache.get(name, namespace) for names in named.values() for name in names}
        missing = {group: name for group, names in named.items() for name in sorted(names) if held[name] is None}
        specs = {name: template.spec.get("spec") or {} for name, template in held.items() if template is not None}
        return ClaimView(specs=specs, missing=missing)

    def forget(self, cluster: Key) -> None:
        namespace = cluster.namespace or ""
        users = self._users.get(namespace)
        if users is None:
            return
        users.discard(cluster)
        if not users:
            del self._users[namespace]
            self._caches.forget(namespace)


def _named(cluster: RayCluster) -> dict[str, frozenset[str]]:
    """The names of templates, by group."""
    groups: list[tuple[str, GroupSpec]] = [(HEAD_GROUP, cluster.spec.head_group_spec)]
    groups += [(group.group_name, group) for group in cluster.spec.worker_group_specs]
    readable = {name: group for name, group in groups if isinstance(read_template(group.template), Template)}
    found = {name: claim_templates(group.template.get("spec") or {}) for name, group in readable.items()}
    return {name: names for name, names in found.items() if names}
