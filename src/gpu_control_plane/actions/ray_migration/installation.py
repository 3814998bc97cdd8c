"""What is installed of KubeRay and of ours, and which objects of Ray there are: read once, for a plan."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.api.shapes import wire_name
from gpu_control_plane.kube import Client, Object
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.migration.deployment import ConfigMap, Deployment, our_deployment
from gpu_control_plane.migration.other_operator import (
    OtherOperator,
    current_holder,
    operator_deployments,
    our_lease,
    trusted_leases,
)
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.options_from import DOMAIN, DURATIONS, SWITCHES, PodDefaults
from gpu_control_plane.ray.owned import OF_CLUSTERS, RayPod
from gpu_control_plane.rules.trusted_namespaces import KUBERAY_NAMESPACES, TrustedNamespaces
from gpu_control_plane.settings import parse_duration, parse_timings

KUBERAY: Final = OtherOperator(
    words="KubeRay's operator",
    lease=LEASE,
    labels=("app.kubernetes.io/name=kuberay-operator", "app.kubernetes.io/component=kuberay-operator"),
    usual=KUBERAY_NAMESPACES,
)
_TIMINGS: Final = "ray"
"""The group of waiting times that the option `--timing` sets for Ray."""
_POD_DEFAULTS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(PodDefaults))
_DELETES_JOBS: Final = "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"
Configuration = Mapping[str, Any]
"""A configuration file of KubeRay's operator. Its flags mean nothing where it has one."""


class RaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator of Ray was started: KubeRay's or ours."""

    watch_namespaces: frozenset[str] = frozenset()
    """All where there is none."""
    batch_scheduler: str = ""
    use_kubernetes_proxy: bool = False
    cluster_domain: str = RayOptions().cluster_domain
    """By which heads are found."""
    switches: dict[str, str] = {}
    """Variables of its environment that are switches, as far as they were set."""
    waits: dict[str, timedelta] = {}
    """Waiting times that both have, by their names here, as far as they were set."""
    pod_defaults: bool = False
    """Whether every pod of Ray gets something that its template does not say."""
    holds_lease: bool = True
    """Whether it holds a Lease, by which alone the other one knows of it."""

    def watches(self, item: Object) -> bool:
        return not self.watch_namespaces or item.metadata.namespace in self.watch_namespaces


class OurRelease(msgspec.Struct, frozen=True, kw_only=True):
    """How our controllers were installed."""

    ray: bool = True
    """Whether they look after Ray."""
    settings: RaySettings = RaySettings()
    trusted: TrustedNamespaces = TrustedNamespaces(usual=KUBERAY_NAMESPACES)
    """Where they believe KubeRay's Lease."""


class RayInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster holds at one moment."""

    deployments: tuple[Deployment, ...] = ()
    """KubeRay's operator; more than one only if it was installed more than once."""
    configurations: Mapping[Key, Configuration | None] = {}
    """The configuration file of each Deployment that has one; None if it cannot be read."""
    kuberay_holder: LeaseHolder | None = None
    our_holder: LeaseHolder | None = None
    own_namespace: str = DEFAULT_NAMESPACE
    release: OurRelease | None = None
    """None if ours was not installed by the chart."""
    clusters: tuple[RayCluster, ...] = ()
    jobs: tuple[RayJob, ...] = ()
    services: tuple[RayService, ...] = ()
    cron_jobs: tuple[RayCronJob, ...] = ()
    pods: tuple[RayPod, ...] = ()
    now: datetime


async def read_ray(
    client: Client, own_namespace: str, namespace: str | None = None, *, now: datetime | None = None
) -> RayInstallation:
    """Everything a plan needs. Our controllers run in `own_namespace`; KubeRay's operator is looked for in `namespace`,
    or everywhere. A kind that the cluster does not know has no objects."""
    moment = now or utc_now()
    leases, own, release = await asyncio.gather(
        client.list(TimedLease, lease_selection(LEASE, namespace)),
        client.list(TimedLease, our_lease(own_namespace)),
        _release(client, own_namespace),
    )
    trusted = release.trusted if release is not None else KUBERAY.trusted(own_namespace)
    theirs = trusted_leases(leases, trusted, {namespace or ""})
    clusters, jobs, services, cron_jobs, pods, deployments = await asyncio.gather(
        _all(client, RayCluster),
        _all(client, RayJob),
        _all(client, RayService),
        _all(client, RayCronJob),
        client.list(RayPod, OF_CLUSTERS),
        operator_deployments(client, own_namespace, namespace, theirs, what=KUBERAY),
    )
    return RayInstallation(
        deployments=tuple(deployments),
        configurations=await _configurations(client, deployments),
        kuberay_holder=active_holder((observe(lease, moment) for lease in theirs), moment),
        our_holder=current_holder(own, moment),
        own_namespace=own_namespace,
        release=release,
        clusters=tuple(clusters),
        jobs=tuple(jobs),
        services=tuple(services),
        cron_jobs=tuple(cron_jobs),
        pods=tuple(pods),
        now=moment,
    )


def kuberay_settings(deployment: Deployment, configuration: Configuration | None = None) -> RaySettings:
    """How KubeRay's operator was started: by its flags, or by its configuration file."""
    given = _flags(deployment) if configuration is None else configuration
    legacy = given.get("enableBatchScheduler") is True
    switches = _switches(deployment)
    if configuration is not None:
        # The variable means nothing beside a file.
        switches.pop(_DELETES_JOBS, None)
        if given.get("deleteRayJobAfterJobFinishes") is True:
            switches[_DELETES_JOBS] = "true"
    return RaySettings(
        watch_namespaces=frozenset(filter(None, str(given.get("watchNamespace") or "").split(","))),
        batch_scheduler=str(given.get("batchScheduler") or ("volcano" if legacy else "")),
        use_kubernetes_proxy=given.get("useKubernetesProxy") is True,
        cluster_domain=_domain(deployment),
        switches=switches,
        waits=_waits(deployment),
        pod_defaults=any(given.get(key) for key in _POD_DEFAULTS),
        holds_lease=given.get("enableLeaderElection") is not False,
    )


def our_release(held: Deployment, own_namespace: str) -> OurRelease:
    """How our controllers were installed, by their Deployment."""
    alone = held.argument("ray-watch-namespace") if held.flag("ray-single-namespace") else ()
    return OurRelease(
        ray="ray" not in held.argument("without"),
        settings=RaySettings(
            watch_namespaces=frozenset(held.argument("ray-watch-namespace")),
            batch_scheduler=next(iter(held.argument("ray-batch-scheduler")), ""),
            use_kubernetes_proxy=held.flag("ray-use-kubernetes-proxy"),
            cluster_domain=_domain(held),
            pod_defaults=bool(held.argument("ray-defaults")),
            switches=_switches(held),
            waits=_waits(held),
        ),
        trusted=KUBERAY.trusted(own_namespace, (*held.argument("kuberay-namespace"), *alone)),
    )


def _flags(deployment: Deployment) -> Configuration:
    """The flags that matter, under the keys that they have in a configuration file."""
    return {
        "watchNamespace": ",".join(deployment.argument("watch-namespace")),
        "batchScheduler": next(iter(deployment.argument("batch-scheduler")), ""),
        "enableBatchScheduler": deployment.flag("enable-batch-scheduler"),
        "useKubernetesProxy": deployment.flag("use-kubernetes-proxy"),
        "enableLeaderElection": "false" not in deployment.argument("enable-leader-election"),
    }


async def _release(client: Client, own_namespace: str) -> OurRelease | None:
    held = await our_deployment(client, own_namespace)
    return our_release(held, own_namespace) if held is not None else None


async def _configurations(client: Client, deployments: Iterable[Deployment]) -> dict[Key, Configuration | None]:
    return {one.key: await _configuration(client, one) for one in deployments if one.argument("config")}


async def _configuration(client: Client, deployment: Deployment) -> Configuration | None:
    """The file of `--config`, from a ConfigMap that the pods mount; None if none of them has it."""
    import yaml  # noqa: PLC0415 - few have such a file

    file = deployment.argument("config")[0].rpartition("/")[2]
    for name in deployment.config_maps:
        try:
            held = await client.get(ConfigMap, name, deployment.metadata.namespace)
            given = yaml.safe_load(held.data.get(file, ""))
        except (NotFound, yaml.YAMLError):
            continue
        if isinstance(given, dict):
            return given
    return None


def _switches(deployment: Deployment) -> dict[str, str]:
    return {name: value.lower() for name, value in deployment.variables.items() if name in SWITCHES}


def _domain(deployment: Deployment) -> str:
    return deployment.variables.get(DOMAIN, "").strip(".") or RayOptions().cluster_domain


def _waits(deployment: Deployment) -> dict[str, timedelta]:
    """By variables, and by `--timing`, which has the last word and only ours has. What is no number counts for nothing:
    KubeRay's operator then has its default."""
    variables = ((wire_name(wait), deployment.variables.get(name, "")) for name, wait in DURATIONS.items())
    found = {wait: timedelta(seconds=int(value)) for wait, value in variables if value.isdecimal()}
    options = (option for option in deployment.argument("timing") if option.startswith(f"{_TIMINGS}."))
    given = parse_timings(options, [_TIMINGS])[_TIMINGS]
    known = {wire_name(wait) for wait in DURATIONS.values()}
    return found | {wait: parse_duration(text) for wait, text in given.items() if wait in known}


async def _all[T: Object](client: Client, kind: type[T]) -> list[T]:
    try:
        return await client.list(kind)
    except NotFound:
        return []
