"""The `num-gpus` that are filled in for Ray's autoscaler, and how they are told from what users write. Pure.

An annotation of the RayCluster says which values are ours. They are worked out anew at each change of its spec, and are
no part of what pods and clusters are compared by: nothing is made anew because one was filled in.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import GroupSpec, RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation
from gpu_control_plane.rules.ray.autoscaler_view import GPUS_PARAM, gpus_unseen
from gpu_control_plane.rules.ray.gpus import PoolResources
from gpu_control_plane.rules.ray.templates import Template, read_template

type Filled = Mapping[str, str]
"""Values of `num-gpus` by group."""
_annotations: Final = msgspec.json.Decoder(dict[str, str])


def gpus_to_fill(cluster: RayCluster, gpus: PoolResources) -> Filled:
    """What belongs into the parameters of which groups, so that the autoscaler knows the GPUs of their pods."""
    if not cluster.spec.autoscales:
        return {}
    spec = as_written(cluster)
    groups: list[tuple[str, GroupSpec]] = [(HEAD_GROUP, spec.head_group_spec)]
    groups += [(group.group_name, group) for group in spec.worker_group_specs]
    unseen = {name: gpus_unseen(group, gpus) for name, group in groups if _can_be_filled(group)}
    return {name: str(units) for name, units in unseen.items() if units is not None}


def filled_gpus(cluster: RayCluster) -> Filled:
    """What was filled in, as its annotation says."""
    text = cluster.metadata.annotations.get(Annotation.FILLED_GPUS, "")
    try:
        return _annotations.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}


def filled_text(filled: Filled) -> str:
    """The annotation."""
    return msgspec.json.encode(filled, order="sorted").decode()


def as_written(cluster: RayCluster) -> RayClusterSpec:
    """The spec without what was filled in. A value that differs from what was filled in is the user's."""
    filled = filled_gpus(cluster)
    if not filled:
        return cluster.spec
    spec = cluster.spec
    return replace(
        spec,
        head_group_spec=_without(spec.head_group_spec, filled.get(HEAD_GROUP)),
        worker_group_specs=tuple(_without(group, filled.get(group.group_name)) for group in spec.worker_group_specs),
    )


def group_as_written[Group: GroupSpec](cluster: RayCluster, group: Group) -> Group:
    """One group of it without what was filled in."""
    return _without(group, filled_gpus(cluster).get(getattr(group, "group_name", HEAD_GROUP)))


def _without[Group: GroupSpec](group: Group, filled: str | None) -> Group:
    if filled is None or group.ray_start_params.get(GPUS_PARAM) != filled:
        return group
    kept = {name: value for name, value in group.ray_start_params.items() if name != GPUS_PARAM}
    return replace(group, ray_start_params=kept)


def _can_be_filled(group: GroupSpec) -> bool:
    """Whether the parameter may stand there, and its value is known. The field `resources` excludes it, and how many
    devices a claim comes to is not known here."""
    if group.resources or not isinstance(read_template(group.template), Template):
        return False
    containers = (group.template.get("spec") or {}).get("containers") or [{}]
    return not (containers[0].get("resources") or {}).get("claims")
