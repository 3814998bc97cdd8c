"""How many pods a RayCluster asks for, and what they need together. Pure.

The same numbers count in a status, in a PodGroup and in a quota.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from gpu_control_plane.api.ray.cluster import UNLIMITED, RayClusterSpec, WorkerGroupSpec
from gpu_control_plane.rules.ray.amounts import amount_of

Amounts = dict[str, Decimal]


def group_replicas(group: WorkerGroupSpec) -> int:
    """Replicas that a group should have: those it asks for, within its bounds; none while it is suspended."""
    if group.suspend:
        return 0
    least = group.min_replicas or 0
    most = UNLIMITED if group.max_replicas is None else group.max_replicas
    return min(max(group.replicas or 0, least), most)


def group_pods(group: WorkerGroupSpec) -> int:
    """Pods that a group should have."""
    return group_replicas(group) * max(1, group.num_of_hosts)


def least_group_pods(group: WorkerGroupSpec) -> int:
    """The fewest pods of a group; none while it is suspended."""
    return 0 if group.suspend else (group.min_replicas or 0) * max(1, group.num_of_hosts)


def most_group_pods(group: WorkerGroupSpec) -> int:
    """The most pods of a group, as far as 32 bits go; none while it is suspended."""
    most = UNLIMITED if group.max_replicas is None else group.max_replicas
    return 0 if group.suspend else min(most * max(1, group.num_of_hosts), UNLIMITED)


def worker_pods(spec: RayClusterSpec) -> int:
    """Worker pods that a cluster should have."""
    return sum(map(group_pods, spec.worker_group_specs))


def pod_amounts(pod_spec: Mapping[str, Any]) -> Amounts:
    """What the containers of a pod ask for together: requests, and limits where there is none."""
    total: Amounts = defaultdict(Decimal)
    for container in pod_spec.get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, quantity in asked.items():
            total[name] += amount_of(quantity) or 0
    return dict(total)


def desired_amounts(spec: RayClusterSpec) -> Amounts:
    """What all pods of a cluster ask for."""
    return cluster_amounts(spec, ((group, group_pods(group)) for group in spec.worker_group_specs))


def least_amounts(spec: RayClusterSpec) -> Amounts:
    """What the fewest pods of a cluster ask for."""
    return cluster_amounts(spec, ((group, least_group_pods(group)) for group in spec.worker_group_specs))


def cluster_amounts(spec: RayClusterSpec, groups: Iterable[tuple[WorkerGroupSpec, int]]) -> Amounts:
    """What the head and so many pods of each group ask for."""
    total: Amounts = defaultdict(Decimal)
    for template, count in [(spec.head_group_spec.template, 1), *((group.template, count) for group, count in groups)]:
        for name, amount in pod_amounts(template.get("spec") or {}).items():
            total[name] += amount * count
    return dict(total)


def quantity_text(amount: Decimal) -> str:
    """An amount as Kubernetes writes it: whole, or in thousandths rounded up."""
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{math.ceil(amount * 1000)}m"
