"""What a RayService is decided on, put together from the objects that belong to it. Pure.

What Ray Serve says is no part of it: `serve_calls` adds that.
"""

import random
import string
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from gpu_control_plane.api.gpupool import Capacity, GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService, RayPod, is_owned
from gpu_control_plane.ray.service.applications import BadConfig, parse
from gpu_control_plane.ray.service.backend import name_problem, port_problem
from gpu_control_plane.ray.service.gateway import GatewayView
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot, Timings
from gpu_control_plane.rules.ray.problem import Facts, sentences
from gpu_control_plane.rules.ray.service import service_problems

_SUFFIX_LENGTH: Final = 5


def snapshot_of(
    service: RayService,
    *,
    clusters: Iterable[RayCluster],
    pods: Callable[[RayCluster], Iterable[RayPod]],
    services: Callable[[Object], Iterable[OwnedService]],
    endpoints: int,
    gateway: GatewayView,
    pools: Iterable[GPUPool],
    rng: random.Random,
    now: datetime,
    options: RayOptions,
    timings: Timings,
    other_operator: str = "",
) -> Snapshot:
    """The snapshot of a service. Of the objects given, those that belong to another one of the same name are left out.

    `pods` and `services` answer with the objects of an owner: a RayCluster, or also the RayService itself.
    """
    own = sorted(_owned(clusters, service), key=lambda cluster: cluster.name)
    pools = tuple(pools)
    config, problems = _config(service)
    return Snapshot(
        service=service,
        clusters=tuple(ClusterView(cluster=cluster, pods=tuple(_owned(pods(cluster), cluster))) for cluster in own),
        services=tuple(held for owner in (service, *own) for held in _owned(services(owner), owner)),
        endpoints=endpoints,
        gateway=gateway,
        free=_units(pools, lambda counted: counted.available),
        unheld=_units(pools, lambda counted: counted.available + counted.reserved),
        problems=problems,
        config=config,
        other_operator=other_operator,
        options=options,
        timings=timings,
        suffix="".join(rng.choices(string.ascii_lowercase + string.digits, k=_SUFFIX_LENGTH)),
        now=now,
    )


def _config(service: RayService) -> tuple[dict[str, Any], str]:
    """The configuration of Ray Serve, and what is wrong with the spec."""
    problems = (
        sentences(service_problems(service, Facts())) or f"{port_problem(service)} {name_problem(service)}".strip()
    )
    try:
        return parse(service.spec.serve_config_v2), problems
    except BadConfig as error:
        return {}, f"{problems} spec.serveConfigV2: {error}".strip()


def _units(pools: Iterable[GPUPool], of: Callable[[Capacity], int]) -> dict[str, int]:
    """Units of pools, by resource; none of what a pool has not counted yet."""
    found: dict[str, int] = {}
    for pool in pools:
        found |= dict.fromkeys(pool.resource_names, 0)
        found |= {counted.name: of(counted) for counted in pool.status.capacity}
    return found


def _owned[T: Object](items: Iterable[T], owner: Object) -> list[T]:
    return [item for item in items if is_owned(item, owner)]
