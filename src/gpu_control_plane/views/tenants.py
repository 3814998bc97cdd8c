"""A namespace that wants units, read with the rights of whoever asks."""

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import USE
from gpu_control_plane.api.namespace import Namespace, ResourceQuota
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.views.fleet import Missing
from gpu_control_plane.views.pools import Tenant
from gpu_control_plane.views.reading import read_kind


async def read_tenant(client: Client, namespace: str) -> tuple[Tenant, tuple[Missing, ...]]:
    """A namespace as its reader may see it: its quotas, and the pools that the reader has the verb `use` on."""
    quotas, rules, labels = await asyncio.gather(
        read_kind(client, ResourceQuota, Selection(namespace)), _may_use(client, namespace), _labels(client, namespace)
    )
    missing = (quotas,) if isinstance(quotas, Missing) else ()
    held = None if isinstance(quotas, Missing) else tuple(each for each in quotas if isinstance(each, ResourceQuota))
    return Tenant(namespace=namespace, labels=labels, quotas=held, may_use=rules), missing


async def _may_use(client: Client, namespace: str) -> Callable[[str], bool]:
    review = await client.create(RulesReview, {"spec": {"namespace": namespace}})
    rules = [rule for rule in review.status.resource_rules if rule.grants(GPUPool.resource, USE)]
    return lambda pool: any(not rule.resource_names or pool in rule.resource_names for rule in rules)


async def _labels(client: Client, namespace: str) -> Mapping[str, str]:
    """The labels of the namespace, by which a pool may admit it; a tenant may not read them."""
    try:
        return (await client.get(Namespace, namespace)).metadata.labels
    except (Forbidden, NotFound):
        return {}


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What somebody may do."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def grants(self, resource: Resource, verb: str) -> bool:
        """Whether it grants the verb on some objects of the resource."""
        wanted = ((verb, self.verbs), (resource.group, self.api_groups), (resource.plural, self.resources))
        return all(not {"*", name}.isdisjoint(granted) for name, granted in wanted)


class RulesReviewStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_rules: tuple[Rule, ...] = ()


class RulesReview(Object, frozen=True):
    """The question what the asker may do in a namespace, and its answer."""

    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
    )

    status: RulesReviewStatus = RulesReviewStatus()
