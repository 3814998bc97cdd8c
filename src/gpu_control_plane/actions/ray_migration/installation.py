"""What is installed of KubeRay and of ours, and which objects of Ray there are: read once, for a plan."""

import asyncio
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube import Client, Object
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.migration.installation import (
    Deployment,
    OtherOperator,
    believed,
    current_holder,
    operator_deployments,
    our_lease,
)
from gpu_control_plane.ray.options_from import SWITCHES
from gpu_control_plane.ray.owned import OF_CLUSTERS, RayPod
from gpu_control_plane.rules.trusted_namespaces import KUBERAY_NAMESPACES, TrustedNamespaces

KUBERAY: Final = OtherOperator(
    words="KubeRay's operator",
    lease=LEASE,
    labels=("app.kubernetes.io/name=kuberay-operator", "app.kubernetes.io/component=kuberay-operator"),
    usual=KUBERAY_NAMESPACES,
)
_CONTROLLER: Final = "gpu-control-plane-controller"


class RaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator of Ray was started: KubeRay's or ours."""

    watch_namespaces: frozenset[str] = frozenset()
    """All where there is none."""
    batch_scheduler: str = ""
    use_kubernetes_proxy: bool = False
    switches: dict[str, str] = {}
    """Variables of its environment that are switches, as far as they were set."""

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
    kuberay_holder: LeaseHolder | None = None
    our_holder: LeaseHolder | None = None
    own_namespace: str = DEFAULT_NAMESPACE
    release: OurRelease | None = None
    """None if ours was not installed by the chart."""
    clusters: tuple[RayCluster, ...] = ()
    jobs: tuple[RayJob, ...] = ()
    services: tuple[RayService, ...] = ()
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
    theirs = believed(leases, trusted, {namespace or ""})
    clusters, jobs, services, pods, deployments = await asyncio.gather(
        _all(client, RayCluster),
        _all(client, RayJob),
        _all(client, RayService),
        client.list(RayPod, OF_CLUSTERS),
        operator_deployments(client, own_namespace, namespace, theirs, what=KUBERAY),
    )
    return RayInstallation(
        deployments=tuple(deployments),
        kuberay_holder=active_holder((observe(lease, moment) for lease in theirs), moment),
        our_holder=current_holder(own, moment),
        own_namespace=own_namespace,
        release=release,
        clusters=tuple(clusters),
        jobs=tuple(jobs),
        services=tuple(services),
        pods=tuple(pods),
        now=moment,
    )


def kuberay_settings(deployment: Deployment) -> RaySettings:
    """How KubeRay's operator was started, by its flags. A configuration file in a ConfigMap is not read."""
    names = [name for value in deployment.argument("watch-namespace") for name in value.split(",") if name]
    legacy = "true" in deployment.argument("enable-batch-scheduler")
    return RaySettings(
        watch_namespaces=frozenset(names),
        batch_scheduler=next(iter(deployment.argument("batch-scheduler")), "volcano" if legacy else ""),
        use_kubernetes_proxy="true" in deployment.argument("use-kubernetes-proxy"),
        switches=_switches(deployment),
    )


async def _release(client: Client, own_namespace: str) -> OurRelease | None:
    try:
        held = await client.get(Deployment, _CONTROLLER, own_namespace)
    except NotFound:
        return None
    alone = held.argument("ray-watch-namespace") if held.flag("ray-single-namespace") else ()
    return OurRelease(
        ray="ray" not in held.argument("without"),
        settings=RaySettings(
            watch_namespaces=frozenset(held.argument("ray-watch-namespace")),
            batch_scheduler=next(iter(held.argument("ray-batch-scheduler")), ""),
            use_kubernetes_proxy=held.flag("ray-use-kubernetes-proxy"),
            switches=_switches(held),
        ),
        trusted=KUBERAY.trusted(own_namespace, (*held.argument("kuberay-namespace"), *alone)),
    )


def _switches(deployment: Deployment) -> dict[str, str]:
    return {name: value.lower() for name, value in deployment.variables.items() if name in SWITCHES}


async def _all[T: Object](client: Client, kind: type[T]) -> list[T]:
    try:
        return await client.list(kind)
    except NotFound:
        return []
