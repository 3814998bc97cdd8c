"""What Ray's autoscaler reads of a RayCluster, which it fetches by itself, and where that is not what pods have. Pure.

It knows GPUs by resources whose names end in `gpu`, and nothing of pools, MIG instances, shares and claims: of such a
group it would never add a worker for a task that wants a GPU.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import GroupSpec
from gpu_control_plane.rules.ray.amounts import whole_units
from gpu_control_plane.rules.ray.gpus import NO_CLAIMS, Claims, PoolResources

GPUS_PARAM: Final = "num-gpus"
GPUS_FIELD: Final = "GPU"
"""The same in the field `resources` of a group."""


def gpus_unseen(group: GroupSpec, gpus: PoolResources, claims: Claims = NO_CLAIMS) -> int | None:
    """What `num-gpus` of the group has to say, so that the autoscaler knows the GPUs of its pods; None where it does,
    or where the user says how many there are."""
    if GPUS_FIELD in group.resources or GPUS_PARAM in group.ray_start_params:
        return None
    spec: Mapping[str, Any] = group.template.get("spec") or {}
    containers = spec.get("containers")
    if not containers:
        return None
    there = gpus.container_gpus(containers[0], spec, claims)
    seen = next((units for name, units in _asked(group) if name.endswith("gpu") and units), 0)
    return None if there == seen else there


def cpus_unseen(group: GroupSpec) -> bool:
    """Whether the autoscaler finds no CPUs of a group: it ends at once then."""
    if "CPU" in group.resources or "num-cpus" in group.ray_start_params:
        return False
    return not any(name == "cpu" for name, _ in _asked(group))


def _asked(group: GroupSpec) -> Iterator[tuple[str, int]]:
    """Limits, and after them requests, of the container that runs Ray, in the order of the spec."""
    containers = (group.template.get("spec") or {}).get("containers") or [{}]
    resources = containers[0].get("resources") or {}
    for kind in ("limits", "requests"):
        for name, quantity in (resources.get(kind) or {}).items():
            yield name, whole_units(quantity)
