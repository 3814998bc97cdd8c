"""Whether pools could ever serve a RayCluster, if all cards that they select were theirs, and free. Pure.

Cards may be added later: nothing is refused for this, it is said at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import RayClusterSpec
from gpu_control_plane.kube.sentences import counted, shortened, some_of
from gpu_control_plane.ray.demand import group_pods
from gpu_control_plane.rules.hopeless_requests import Hopeless, why_hopeless
from gpu_control_plane.rules.ray.amounts import pod_devices
from gpu_control_plane.rules.ray.gpus import PoolFacts, PoolResources

_SENTENCE_LIMIT: Final = 500
Largest = Callable[[str], int]
"""Units of a resource on the node that has the most; 0 while no node has any."""


def cluster_unserved(spec: RayClusterSpec, pools: PoolResources, largest: Largest) -> str | None:
    """Why the head and all groups, as large as they are asked for, could never have their cards; None if they could.

    The first group that could not is named; groups that could each, and not together, are named together.
    """
    sentence = _unserved(spec, pools, largest)
    return shortened(sentence, _SENTENCE_LIMIT) if sentence is not None else None


def _unserved(spec: RayClusterSpec, pools: PoolResources, largest: Largest) -> str | None:
    workers = spec.worker_group_specs
    sizes = [("the head", spec.head_group_spec.template, 1)]
    sizes += [(f"worker group {group.group_name}", group.template, group_pods(group)) for group in workers]
    together: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for who, template, pods in sizes:
        if (sentence := group_unserved(who, template, pods, pools, largest)) is not None:
            return sentence
        for resource, units in pod_units(template).items():
            together[resource].append((who, units * pods))
    for resource, parts in together.items():
        pool = pools.pool(resource)
        asked = [(who, units) for who, units in parts if units]
        if pool is not None and (sentence := _more_than_all(pool, resource, asked)) is not None:
            return sentence
    return None


def group_unserved(
    who: str, template: Mapping[str, Any], pods: int, pools: PoolResources, largest: Largest
) -> str | None:
    """Why so many pods of one template could never have their cards; None if they could, or if there are to be none."""
    if not pods:
        return None
    return next(_reasons(who, pod_units(template), pods, pools, largest), None)


def pod_units(template: Mapping[str, Any]) -> dict[str, int]:
    """Units of each extended resource that a pod needs at once."""
    return pod_devices(template.get("spec") or {})


def _reasons(who: str, asked: Mapping[str, int], pods: int, pools: PoolResources, largest: Largest) -> Iterator[str]:
    for resource, units in asked.items():
        pool, most = pools.pool_meant(resource), largest(resource)
        hopeless = why_hopeless(
            resource,
            units,
            offered=pool.resources if pool is not None else None,
            deleting=pool is not None and pool.deleting,
            largest=most,
        )
        if pool is None:
            if hopeless is Hopeless.NO_POOL:
                yield f"{who} asks for {resource}, which no GPU pool offers: kubectl get gpupools -o wide"
            continue
        match hopeless:
            case Hopeless.NOT_OFFERED:
                yield f"{who} asks for {resource}, but the GPU pool {pool.name} offers {', '.join(pool.resources)}"
            case Hopeless.DELETING:
                yield f"{who} asks for {resource}, and the GPU pool {pool.name} is being deleted"
            case Hopeless.TOO_LARGE:
                yield (
                    f"{who} asks for {counted(units, 'unit')} of {resource} in one pod, "
                    f"and no node of the GPU pool {pool.name} has more than {most}"
                )
            case _:
                if (sentence := _more_than_all(pool, resource, [(who, units * pods)])) is not None:
                    yield sentence


def _more_than_all(pool: PoolFacts, resource: str, asked: list[tuple[str, int]]) -> str | None:
    total, wanted = pool.totals.get(resource), sum(units for _, units in asked)
    if total is None or wanted <= total + pool.to_come:
        return None
    whose = some_of([who for who, _ in asked], " and ")
    verb = "ask" if len(asked) > 1 else "asks"
    return (
        f"{whose} {verb} for {counted(wanted, 'unit')} of {resource} in all, "
        f"and the GPU pool {pool.name} has {total or 'none'}"
    )
