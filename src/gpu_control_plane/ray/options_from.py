"""The switches of the operator of Ray, from flags, the environment and a file.

The variables are those that KubeRay's operator reads, so that its users know them. A value that makes no sense ends the
process at its start with a sentence: nobody looks for a switch that was taken for its default.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from gpu_control_plane.kube.errors import ConfigError
from gpu_control_plane.ray.options import BatchScheduler, RayOptions

SWITCHES: Final[Mapping[str, str]] = {
    "ENABLE_INIT_CONTAINER_INJECTION": "init_container",
    "ENABLE_PROBES_INJECTION": "probes",
    "ENABLE_GCS_FT_REDIS_CLEANUP": "redis_cleanup",
    "ENABLE_ZERO_DOWNTIME": "zero_downtime",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "head_cluster_ip_service",
    "ENABLE_RANDOM_POD_DELETE": "random_pod_delete",
    "ENABLE_LOGIN_SHELL": "login_shell",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME": "deterministic_head_name",
    "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES": "delete_job_after_finish",
    "USE_INGRESS_ON_OPENSHIFT": "ingress_on_openshift",
}
"""Variables that are on or off, and the option that each sets."""
DOMAIN: Final = "CLUSTER_DOMAIN"
DURATIONS: Final[Mapping[str, str]] = {
    "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS": "job_end_grace",
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": "job_status_check_timeout",
}
"""Variables that are seconds, and the field of `Settings` that each sets. `--timing` has the last word."""

_ON: Final = frozenset({"true", "1", "t"})
_OFF: Final = frozenset({"false", "0", "f"})
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DOMAIN: Final = re.compile(rf"{_NAMESPACE.pattern}(\.{_NAMESPACE.pattern})*")


class PodDefaults(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """What every pod of Ray has besides what its template says: the file behind `--ray-defaults`. Nothing of it takes
    the place of what a template says itself. The keys are those of `configuration` in KubeRay's chart."""

    default_container_envs: tuple[dict[str, Any], ...] = ()
    default_pod_annotations: dict[str, str] = {}
    default_pod_labels: dict[str, str] = {}
    head_sidecar_containers: tuple[dict[str, Any], ...] = ()
    worker_sidecar_containers: tuple[dict[str, Any], ...] = ()


def options_from(
    environment: Mapping[str, str],
    *,
    watch_namespaces: Sequence[str] = (),
    batch_scheduler: str = "",
    gang: bool = True,
    use_kubernetes_proxy: bool = False,
    openshift: bool = False,
    defaults: Path | None = None,
) -> RayOptions:
    """The options; `ConfigError` with a sentence for what makes no sense."""
    held = _defaults(defaults)
    switches = {
        option: _switch(name, environment[name]) for name, option in SWITCHES.items() if environment.get(name, "")
    }
    options = RayOptions(
        watch_namespaces=tuple(_namespaces(watch_namespaces)),
        cluster_domain=_domain(environment),
        batch_scheduler=_scheduler(batch_scheduler),
        gang=gang,
        use_kubernetes_proxy=use_kubernetes_proxy,
        openshift=openshift,
        default_container_envs=held.default_container_envs,
        default_pod_annotations=held.default_pod_annotations,
        default_pod_labels=held.default_pod_labels,
        head_sidecars=held.head_sidecar_containers,
        worker_sidecars=held.worker_sidecar_containers,
    )
    return msgspec.structs.replace(options, **switches)


def timings_from(environment: Mapping[str, str]) -> dict[str, timedelta]:
    """Waiting times that KubeRay reads from the environment, by the names of their fields."""
    return {wait: _seconds(name, environment[name]) for name, wait in DURATIONS.items() if environment.get(name, "")}


def _switch(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in _ON | _OFF:
        raise ConfigError(f"{name} is true or false, and not {value!r}")
    return word in _ON


def _seconds(name: str, value: str) -> timedelta:
    if not value.strip().isdecimal() or not int(value):
        raise ConfigError(f"{name} is a number of seconds, at least 1, and not {value!r}")
    return timedelta(seconds=int(value))


def _domain(environment: Mapping[str, str]) -> str:
    value = environment.get(DOMAIN, "").strip(".") or RayOptions().cluster_domain
    if not _DOMAIN.fullmatch(value):
        raise ConfigError(f"{DOMAIN} is the domain of Services, such as cluster.local, and not {value!r}")
    return value


def _namespaces(given: Sequence[str]) -> Iterator[str]:
    """Each once, in order: two watches of one namespace would show everything twice."""
    for name in dict.fromkeys(given):
        if not _NAMESPACE.fullmatch(name):
            raise ConfigError(
                f"--ray-watch-namespace takes the name of one namespace, and {name!r} is none; give it once for each"
            )
        yield name


def _scheduler(given: str) -> BatchScheduler:
    try:
        return BatchScheduler(given)
    except ValueError:
        known = ", ".join(each.value for each in BatchScheduler if each.value)
        raise ConfigError(f"--ray-batch-scheduler is one of {known}, and not {given!r}") from None


def _defaults(path: Path | None) -> PodDefaults:
    if path is None:
        return PodDefaults()
    import yaml  # noqa: PLC0415 - most start without such a file

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the defaults of Ray's pods cannot be read: {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the defaults of Ray's pods are no YAML: {path}: {error}") from error
    try:
        held = msgspec.convert({} if given is None else given, PodDefaults)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the defaults of Ray's pods make no sense: {path}: {error}") from error
    for part, containers in (
        ("headSidecarContainers", held.head_sidecar_containers),
        ("workerSidecarContainers", held.worker_sidecar_containers),
        ("defaultContainerEnvs", held.default_container_envs),
    ):
        if any(not each.get("name") for each in containers):
            raise ConfigError(f"the defaults of Ray's pods make no sense: {path}: an entry of {part} has no name")
    return held
