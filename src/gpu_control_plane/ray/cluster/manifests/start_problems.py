"""What in a spec keeps Ray, or its autoscaler, from knowing what pods have. Nothing is refused for it: it is said."""

from collections.abc import Iterator

import msgspec

from gpu_control_plane.api.ray.cluster import GroupSpec
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.cluster.manifests.start_params import custom_resources, number_of
from gpu_control_plane.rules.ray.autoscaler_view import GPUS_FIELD, GPUS_PARAM, cpus_unseen, gpus_unseen
from gpu_control_plane.rules.ray.filled_gpus import group_as_written


class StartParamProblem(msgspec.Struct, frozen=True):
    """A part of the spec that does not say to Ray what is meant."""

    path: str
    message: str


def start_param_problems(context: ClusterContext) -> list[StartParamProblem]:
    """What cannot be read in the parameters and resources of all groups, and what the autoscaler does not see."""
    spec = context.cluster.spec
    groups: list[tuple[str, GroupSpec]] = [("spec.headGroupSpec", spec.head_group_spec)]
    groups += [(f"spec.workerGroupSpecs[{index}]", group) for index, group in enumerate(spec.worker_group_specs)]
    found = [problem for path, group in groups for problem in _unread(path, group)]
    found += [problem for path, group in groups for problem in _several_turns(context, path, group)]
    if spec.autoscales:
        found += [problem for path, group in groups for problem in _without_cpus(path, group)]
        found += _without_gpus(context)
    return found


def _unread(path: str, group: GroupSpec) -> Iterator[StartParamProblem]:
    for name, quantity in sorted(group.resources.items()):
        if number_of(quantity) is None:
            yield StartParamProblem(
                f"{path}.resources[{name}]", f"{quantity!r} is not a quantity, so Ray is not told of {name}"
            )
    if not group.resources and custom_resources(group.ray_start_params) is None:
        yield StartParamProblem(
            f"{path}.rayStartParams.resources",
            "it cannot be read as a JSON object of numbers, so Ray is told of no GPUs and no other accelerators: "
            "write it as '{\"name\": 1}' in single quotes, or use the field resources",
        )


def _without_cpus(path: str, group: GroupSpec) -> Iterator[StartParamProblem]:
    if cpus_unseen(group):
        yield StartParamProblem(
            f"{path}.rayStartParams",
            "Ray's autoscaler ends at once where it finds no CPUs of a group: "
            "give the Ray container a limit of cpu, or add num-cpus",
        )


def _without_gpus(context: ClusterContext) -> Iterator[StartParamProblem]:
    for index, group in enumerate(context.cluster.spec.worker_group_specs):
        gpus = gpus_unseen(group, context.gpus, context.claims)
        if gpus is not None:
            place, name = ("its resources", GPUS_FIELD) if group.resources else ("its rayStartParams", GPUS_PARAM)
            yield StartParamProblem(
                f"spec.workerGroupSpecs[{index}].rayStartParams",
                f"Ray's autoscaler does not see that a worker of {group.group_name} has {counted(gpus, 'GPU')}, "
                f'since it reads names that end in gpu alone: add {name}: "{gpus}" to {place}',
            )


def _several_turns(context: ClusterContext, path: str, group: GroupSpec) -> Iterator[StartParamProblem]:
    if GPUS_FIELD in group.resources or GPUS_PARAM in group_as_written(context.cluster, group).ray_start_params:
        return
    containers = (group.template.get("spec") or {}).get("containers") or [{}]
    limits = (containers[0].get("resources") or {}).get("limits") or {}
    for pool, turns in context.gpus.turns_of(limits).items():
        if turns > 1:
            yield StartParamProblem(
                f"{path}.template.spec.containers[0].resources.limits",
                f"{turns} replicas of pool {pool} may all be of one card, so Ray is told of 1 GPU: "
                f"ask for 1 in each pod, and for more pods, or say in {GPUS_PARAM} how many cards there are",
            )
