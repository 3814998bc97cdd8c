"""What is wrong with the head's group and the workers' groups, each by itself and beside the others."""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import GroupSpec, RayClusterSpec, WorkerGroupSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.rules.ray.problem import Faults
from gpu_control_plane.rules.ray.templates import Service, Template, read_service, read_template
from gpu_control_plane.rules.ray.texts import is_label_key, is_label_value

_MOST_GROUPS: Final = 500
_LABEL_LIMIT: Final = 63
_REPLICA_NAME: Final = len("-abcde")
"""What the name of a replica with several hosts has after that of its group: it is a label, too."""
_TOLD_BY_RESOURCES: Final = ("num-cpus", "num-gpus", "memory", "resources")


def group_faults(spec: RayClusterSpec, path: str) -> Faults:
    """Of all groups, the head first."""
    yield from head_faults(spec, path)
    if len(spec.worker_group_specs) > _MOST_GROUPS:
        yield (
            f"{path}.workerGroupSpecs",
            f"there are {len(spec.worker_group_specs)} groups: take {_MOST_GROUPS} at most",
        )
    first: dict[str, int] = {}
    for index, group in enumerate(spec.worker_group_specs):
        place = f"{path}.workerGroupSpecs[{index}]"
        before = first.setdefault(group.group_name, index)
        if before != index:
            taken = f"{group.group_name} is the name of workerGroupSpecs[{before}], too"
            yield f"{place}.groupName", f"{taken}, and pods are told apart by it: give each group a name of its own"
        if group.group_name == HEAD_GROUP:
            yield f"{place}.groupName", f"{HEAD_GROUP} is the name of the head's own group: take another"
        yield from _name_faults(group, place)
        yield from _common_faults(group, place)
        yield from _count_faults(group, place, autoscaling=bool(spec.enable_in_tree_autoscaling))


def head_faults(spec: RayClusterSpec, path: str) -> Faults:
    """Of the head: without any of them its pod can be made."""
    yield from _common_faults(spec.head_group_spec, f"{path}.headGroupSpec")
    service = read_service(spec.head_group_spec.head_service or {})
    if not isinstance(service, Service):
        yield f"{path}.headGroupSpec.headService", f"this is no Service: {service}"


def _common_faults(group: GroupSpec, path: str) -> Faults:
    template = read_template(group.template)
    if not isinstance(template, Template):
        yield f"{path}.template", f"this is no template of a pod: {template}"
    elif not template.spec.containers:
        yield f"{path}.template.spec.containers", "there is none: the first one runs Ray"
    if group.resources:
        for name in _TOLD_BY_RESOURCES:
            if name in group.ray_start_params:
                yield (
                    f"{path}.rayStartParams.{name}",
                    f"{path.rsplit('.', 1)[-1]}.resources says it already: keep one of the two",
                )
    if "labels" in group.ray_start_params:
        yield f"{path}.rayStartParams.labels", "labels are given in the field labels of the group: move them there"
    yield from _label_faults(group.labels, f"{path}.labels")


def _name_faults(group: WorkerGroupSpec, path: str) -> Faults:
    most = _LABEL_LIMIT - (_REPLICA_NAME if group.num_of_hosts > 1 else 0)
    if len(group.group_name) > most:
        yield (
            f"{path}.groupName",
            f"it has {len(group.group_name)} characters, and is a label of its pods: take {most} at most",
        )
    elif not is_label_value(group.group_name):
        yield (
            f"{path}.groupName",
            f"{group.group_name} cannot be a label of its pods: take letters, digits, -, _ and .",
        )


def _label_faults(labels: Mapping[str, str], path: str) -> Faults:
    for key, value in labels.items():
        if not is_label_key(key):
            yield path, f"{key!r} is no key of a label: at most 63 letters, digits, -, _ and ., perhaps after a domain/"
        if not is_label_value(value):
            yield f"{path}.{key}", f"{value!r} is no value of a label: at most 63 letters, digits, -, _ and ."


def _count_faults(group: WorkerGroupSpec, path: str, *, autoscaling: bool) -> Faults:
    least, most = group.min_replicas, group.max_replicas
    for name, count in (("minReplicas", least), ("maxReplicas", most)):
        if count is None and not autoscaling:
            yield f"{path}.{name}", "it is needed where Ray does not scale by itself: give a number"
        if count is not None and count < 0:
            yield f"{path}.{name}", f"{count} is less than none: take 0 or more"
    if least is not None and most is not None and 0 <= most < least:
        yield (
            f"{path}.minReplicas",
            f"{least} is more than maxReplicas, which is {most}: lower it, or raise maxReplicas",
        )
    if group.suspend and autoscaling:
        yield (
            f"{path}.suspend",
            "Ray's autoscaler would bring the workers back: switch enableInTreeAutoscaling off, or take suspend away",
        )
