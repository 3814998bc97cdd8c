"""The parameters of `ray start`: those of the user, of the fields `resources` and `labels`, defaults, and what follows
from the container's resources."""

import json
from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import GroupSpec, WorkerGroupSpec
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.cluster.manifests.features import GcsBackend, gcs_backend
from gpu_control_plane.rules.ray.amounts import amount_of, whole_units
from gpu_control_plane.rules.ray.fault_tolerance import REDIS_PASSWORD_ENV, REDIS_USERNAME_ENV
from gpu_control_plane.rules.ray.gpus import is_gpu_of_kuberay

AGENT_PORT: Final = "52365"
METRICS_PORT: Final = "8080"

_TAKE_BOOLEANS: Final = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
"""Parameters that are given a truth value; others are there, or are not."""
_ACCELERATORS: Final = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
"""Resources of Kubernetes that Ray knows by another name."""
_LARGEST: Final = 1 << 63
"""Larger numbers are no amounts of anything."""
_QUOTES: Final = "'\"` "


def head_params(context: ClusterContext) -> dict[str, str]:
    """Parameters of the head."""
    group = context.cluster.spec.head_group_spec
    params = _given(group)
    params.setdefault("dashboard-host", "0.0.0.0")  # noqa: S104 - the dashboard is for callers outside the pod
    _add_defaults(params)
    if context.cluster.spec.autoscales:
        params["no-monitor"] = "true"
    options = context.cluster.spec.gcs_fault_tolerance_options
    if gcs_backend(context.cluster) is GcsBackend.REDIS and options is not None:
        if options.redis_username is not None:
            params["redis-username"] = f"${REDIS_USERNAME_ENV}"
        if options.redis_password is not None:
            params["redis-password"] = f"${REDIS_PASSWORD_ENV}"
    return params


def worker_params(context: ClusterContext, group: WorkerGroupSpec) -> dict[str, str]:
    """Parameters of the workers of a group."""
    params = _given(group)
    params.setdefault("address", f"{context.head_host}:{context.gcs_port}")
    _add_defaults(params)
    return params


def with_resources(params: Mapping[str, str], context: ClusterContext, spec: Mapping[str, Any]) -> dict[str, str]:
    """Parameters together with what the Ray container of a pod has."""
    container = spec["containers"][0]
    held = container.get("resources") or {}
    limits, requests = held.get("limits") or {}, held.get("requests") or {}
    found = dict(params)
    if "num-cpus" not in found and (cpus := whole_units(limits.get("cpu", 0)) or whole_units(requests.get("cpu", 0))):
        found["num-cpus"] = str(cpus)
    if "memory" not in found and (memory := whole_units(limits.get("memory", 0))):
        found["memory"] = str(memory)
    custom = custom_resources(found)
    if custom is None:
        return found
    if "num-gpus" not in found and (gpus := context.gpus.container_gpus(container, spec, context.claims)):
        found["num-gpus"] = str(gpus)
    if not any(name in custom for name in _ACCELERATORS.values()):
        for resource in sorted(limits):
            if resource in _ACCELERATORS and (amount := number_of(limits[resource])):
                found["resources"] = _json({**custom, _ACCELERATORS[resource]: amount})
                break
    return found


def render(params: Mapping[str, str]) -> str:
    """Parameters as text for a shell, each between two spaces. Values are not quoted: users write quotes and variables
    into them."""
    return "".join(f" {flag} " for flag in map(_flag, sorted(params.items())) if flag)


def _given(group: GroupSpec) -> dict[str, str]:
    """Parameters of the user, in which the fields `resources` and `labels` take the place of what they stand for."""
    params = dict(group.ray_start_params)
    custom: dict[str, int | float] = {}
    for name, quantity in group.resources.items():
        amount = number_of(quantity)
        if amount is None:
            continue
        match name.lower():
            case "cpu":
                params["num-cpus"] = str(whole_units(quantity))
            case "memory":
                params["memory"] = str(whole_units(quantity))
            case lower if is_gpu_of_kuberay(lower):
                params["num-gpus"] = str(whole_units(quantity))
            case _:
                custom[name] = amount
    if custom:
        params["resources"] = _json(custom)
    if group.labels:
        params["labels"] = ",".join(f"{key}={value}" for key, value in sorted(group.labels.items()))
    return params


def _add_defaults(params: dict[str, str]) -> None:
    params.setdefault("metrics-export-port", METRICS_PORT)
    params.setdefault("dashboard-agent-listen-port", AGENT_PORT)
    params["block"] = "true"


def _flag(param: tuple[str, str]) -> str:
    name, value = param
    if name not in _TAKE_BOOLEANS and value.lower() in ("true", "false"):
        return f"--{name}" if value.lower() == "true" else ""
    return f"--{name}={value}"


def custom_resources(params: Mapping[str, str]) -> dict[str, int | float] | None:
    """The parameter `resources` as a map; None if it cannot be read."""
    if "resources" not in params:
        return {}
    try:
        read = json.loads(params["resources"].strip(_QUOTES))
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or not all(map(_is_amount, read.values())):
        return None
    return read


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and isinstance(value, int | float) and abs(value) < _LARGEST


def _json(amounts: Mapping[str, int | float]) -> str:
    """JSON in single quotes, for a shell."""
    plain = {name: int(amount) if float(amount).is_integer() else amount for name, amount in amounts.items()}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":")).replace("'", "\\u0027")
    return f"'{text}'"


def number_of(quantity: int | str) -> int | float | None:
    """A quantity as a number; None for what is none."""
    amount = amount_of(quantity)
    if amount is None:
        return None
    return int(amount) if amount == amount.to_integral_value() else float(amount)
