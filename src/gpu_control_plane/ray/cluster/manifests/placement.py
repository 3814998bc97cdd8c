"""Workers of one group near each other: those that ask for cards of a pool talk to each other more than to others."""

from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.scheduling import Strategy
from gpu_control_plane.ray.cluster.manifests.containers import Part, entries
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.rules.ray.gpus import PoolFacts

WEIGHT: Final = 10
"""A tenth of what the pool's own wish weighs: filling nodes comes first, and among nodes alike the group's own wins."""

_HOSTNAME: Final = "kubernetes.io/hostname"


def keep_together(spec: Part, context: ClusterContext, group: str) -> None:
    """Prefer nodes, or whatever the pool spreads over, that have workers of the group.

    Not where the user says something of other pods, and not where a pool wants its pods apart.
    """
    pools = _pools(spec, context)
    affinity = spec.get("affinity") or {}
    if not pools or affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
        return
    if any(pool.strategy is Strategy.SPREAD for pool in pools):
        return
    term = {
        "topologyKey": next((pool.topology_key for pool in pools if pool.topology_key), _HOSTNAME),
        "labelSelector": {
            "matchLabels": {Label.CLUSTER.value: context.cluster.name, Label.GROUP.value: group},
        },
    }
    entries(spec, "affinity")["podAffinity"] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": WEIGHT, "podAffinityTerm": term}]
    }


def _pools(spec: Mapping[str, Any], context: ClusterContext) -> list[PoolFacts]:
    limits = {name for each in spec["containers"] for name in ((each.get("resources") or {}).get("limits") or {})}
    return [pool for pool in map(context.gpus.pool, sorted(limits)) if pool is not None]
