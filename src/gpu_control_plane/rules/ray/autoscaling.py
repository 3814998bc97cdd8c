"""What is wrong with the autoscaler and with what only its newer version reads."""

from typing import Final

from gpu_control_plane.api.ray.cluster import AutoscalerOptions, AutoscalerVersion, RayClusterSpec, WorkerGroupSpec
from gpu_control_plane.rules.ray.problem import Faults
from gpu_control_plane.rules.ray.templates import pod_spec
from gpu_control_plane.rules.ray.texts import at_least

V2_ENV: Final = "RAY_enable_autoscaler_v2"
START_COMMAND_ENV: Final = "KUBERAY_GEN_AUTOSCALER_START_CMD"
_ON: Final = frozenset({"1", "true"})
_PRIORITY_SINCE: Final = (2, 56, 0)
_NEVER: Final = frozenset({"", "Never"})
_NEEDS_V2: Final = "only autoscaler v2 reads it: set autoscalerOptions.version to v2, or remove it"


def autoscaling_faults(spec: RayClusterSpec, path: str) -> Faults:
    """Of the options, and of what groups say to the autoscaler."""
    options, on = spec.autoscaler_options, spec.autoscales
    held = pod_spec(spec.head_group_spec.template).env()
    asked_by_env = asks_for_v2_by_variable(spec)
    version = options.version if options is not None else None
    v2 = version == AutoscalerVersion.V2 or asked_by_env
    env = f"{path}.headGroupSpec.template.spec.containers[0].env"
    if V2_ENV in held and version is not None:
        yield env, f"{V2_ENV} and autoscalerOptions.version say the same: keep version"
    elif asked_by_env and not on:
        yield env, f"{V2_ENV} is set, and enableInTreeAutoscaling is not: set that, too"
    if options is not None:
        yield from _option_faults(options, f"{path}.autoscalerOptions")
    if on and v2:
        yield from _restart_faults(spec, path)
    for index, group in enumerate(spec.worker_group_specs):
        yield from _group_faults(group, f"{path}.workerGroupSpecs[{index}]", spec.ray_version, v2=v2)


def asks_for_v2_by_variable(spec: RayClusterSpec) -> bool:
    """Whether the head's Ray container asks for version 2 by its environment: the older way."""
    return pod_spec(spec.head_group_spec.template).env().get(V2_ENV, "").lower() in _ON


def _option_faults(options: AutoscalerOptions, path: str) -> Faults:
    if options.idle_timeout_seconds is not None and options.idle_timeout_seconds < 0:
        yield f"{path}.idleTimeoutSeconds", "it is less than none: take 0 or more"
    if any(one.get("name") == START_COMMAND_ENV for one in options.env):
        yield f"{path}.env", f"{START_COMMAND_ENV} is made here: call yours something else"


def _group_faults(group: WorkerGroupSpec, path: str, version: str, *, v2: bool) -> Faults:
    if group.idle_timeout_seconds is not None:
        if group.idle_timeout_seconds < 0:
            yield f"{path}.idleTimeoutSeconds", "it is less than none: take 0 or more"
        if not v2:
            yield f"{path}.idleTimeoutSeconds", _NEEDS_V2
    if group.priority:
        if not v2:
            yield f"{path}.priority", _NEEDS_V2
        if not at_least(version, _PRIORITY_SINCE):
            yield f"{path}.priority", f"it needs rayVersion 2.56.0 or later, and that is {version or 'not given'}"


def _restart_faults(spec: RayClusterSpec, path: str) -> Faults:
    groups = {"headGroupSpec": spec.head_group_spec} | {
        f"workerGroupSpecs[{index}]": group for index, group in enumerate(spec.worker_group_specs)
    }
    for place, group in groups.items():
        policy = pod_spec(group.template).restart_policy
        if policy not in _NEVER:
            yield (
                f"{path}.{place}.template.spec.restartPolicy",
                f"autoscaler v2 replaces pods and must not have them restarted: set Never instead of {policy}",
            )
