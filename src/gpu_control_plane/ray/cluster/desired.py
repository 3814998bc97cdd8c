"""What a RayCluster should be, as far as it follows from its spec. Pure.

It is worked out once for a version of the spec and of what it depends on: pods change far more often.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster, WorkerGroupSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP, Label
from gpu_control_plane.api.ray.reasons import ClusterReason
from gpu_control_plane.kube.sentences import shortened
from gpu_control_plane.ray.cluster.children import Child, desired_children
from gpu_control_plane.ray.cluster.manifests import (
    ClusterContext,
    recreate_hash,
    start_param_problems,
    template_hash,
)
from gpu_control_plane.ray.cluster.status import PendingCondition
from gpu_control_plane.ray.demand import group_pods, least_group_pods
from gpu_control_plane.ray.pool_demand import Largest, cluster_unserved, pod_units
from gpu_control_plane.ray.scheduling import BatchSchedule
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.filled_gpus import as_written
from gpu_control_plane.rules.ray.gpus import PoolResources
from gpu_control_plane.rules.ray.problem import Facts, Problem, sentences

_MOST_WARNINGS: Final = 20
_WARNING_LIMIT: Final = 500
NOTHING_MISSING: Final[Mapping[str, str]] = {}


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """What there should be."""

    context: ClusterContext
    problems: tuple[Problem, ...] = ()
    children: tuple[Child, ...] = ()
    template_hashes: Mapping[str, str] = {}
    recreate_hash: str = ""
    together: Mapping[str, int] = {}
    """Pods that have to start at once, by group, of groups that wait for cards of pools together."""
    gpus: int = 0
    waiting: Mapping[str, str] = {}
    """Why no pods of a group are made for now, by group: the ends of sentences."""
    warnings: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        return sentences(self.problems)


def desired(
    context: ClusterContext,
    scheduler: BatchSchedule | None,
    token: bytes,
    *,
    gang: bool,
    missing: Mapping[str, str] = NOTHING_MISSING,
) -> Desired:
    """What there should be of a cluster. `token` is for the Secret of one that has none yet; `missing` says by group
    which template of claims does not exist."""
    cluster = context.cluster
    problems = [*cluster_problems(cluster, Facts())]
    refusal = scheduler.refusal(cluster) if scheduler is not None else None
    if refusal is not None:
        problems.append(Problem(refusal.reason, "spec", refusal.message))
    if problems:
        return Desired(context=context, problems=tuple(problems))
    groups = cluster.spec.worker_group_specs
    hashes = {group.group_name: template_hash(cluster, group) for group in groups}
    counts = [(cluster.spec.head_group_spec.template, 1), *((group.template, group_pods(group)) for group in groups)]
    return Desired(
        context=context,
        children=tuple(desired_children(context, scheduler, token)),
        template_hashes={HEAD_GROUP: template_hash(cluster), **hashes},
        recreate_hash=recreate_hash(as_written(cluster)),
        together={
            group.group_name: size
            for group in groups
            if gang and (size := start_together(cluster, group, context.gpus)) > 1
        },
        gpus=sum(context.gpus.pod_gpus(template.get("spec") or {}, context.claims) * n for template, n in counts),
        waiting={group: f"the ResourceClaimTemplate {name} does not exist" for group, name in missing.items()},
        warnings=tuple(
            shortened(f"{problem.path}: {problem.message}", _WARNING_LIMIT)
            for problem in start_param_problems(context)[:_MOST_WARNINGS]
        ),
    )


def wants_gang(cluster: RayCluster, *, by_default: bool) -> bool:
    """Whether groups start together: the label of the cluster says so, or else the settings."""
    label = cluster.metadata.labels.get(Label.GANG, "").lower()
    return label == "true" if label in ("true", "false") else by_default


def start_together(cluster: RayCluster, group: WorkerGroupSpec, pools: PoolResources) -> int:
    """How many pods of a group have to start at once: all that it cannot do without, if they need cards of pools; up to
    one if none waits for another."""
    if not any(pools.pool(resource) is not None for resource in pod_units(group.template)):
        return 0
    scales = cluster.spec.autoscales
    least = min(least_group_pods(group), group_pods(group)) if scales else group_pods(group)
    hosts = max(1, group.num_of_hosts)
    return max(least, hosts) if group_pods(group) else 0


def capacity(cluster: RayCluster, pools: PoolResources, largest: Largest) -> PendingCondition | None:
    """Whether pools could ever serve it; None if it asks for none."""
    if sentence := cluster_unserved(cluster.spec, pools, largest):
        return PendingCondition(False, ClusterReason.UNSERVED, sentence)
    templates = [cluster.spec.head_group_spec.template, *(g.template for g in cluster.spec.worker_group_specs)]
    asked = any(pools.pool(resource) is not None for template in templates for resource in pod_units(template))
    return PendingCondition(True, ClusterReason.SERVED) if asked else None
