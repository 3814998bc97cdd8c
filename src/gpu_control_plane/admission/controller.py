"""Serves the webhooks, on every replica, with certificates of its own."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gpu_control_plane.admission.approvals import review_approval
from gpu_control_plane.admission.pods import Offer, review_pod
from gpu_control_plane.admission.pools import review
from gpu_control_plane.admission.ray_gpus import fill_gpus
from gpu_control_plane.admission.rays import Ray, review_ray
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.api.ray import RayCluster, RayCronJob, RayJob, RayService
from gpu_control_plane.api.ray.names import LEASE as KUBERAY_LEASE
from gpu_control_plane.kube import Key, Runtime, Selection
from gpu_control_plane.kube.admission import AdmissionRequest, AdmissionResponse, Handler, Operation, allow
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration, publisher
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.certificate_rotation import Subject
from gpu_control_plane.kube.certificate_secret import Secret, ServingCertificates
from gpu_control_plane.kube.lease_watch import LeaseReader
from gpu_control_plane.kube.webhooks import WebhookMetrics, WebhookServer, serve_webhooks
from gpu_control_plane.rules.largest_nodes import LargestNodes
from gpu_control_plane.rules.pool_validation import by_age
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.cronjob import cronjob_problems
from gpu_control_plane.rules.ray.gpus import LivePools
from gpu_control_plane.rules.ray.job import job_problems
from gpu_control_plane.rules.ray.problem import Problem
from gpu_control_plane.rules.ray.service import service_problems
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces, kuberay_namespaces
from gpu_control_plane.rules.webhook_configuration import DEVICES, PODS, POOLS, RAY_CLUSTERS, RAYS

_CONFIGURATIONS: Final = (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
_RESOURCE: Final = "resource-or-stem"


class RayScope(msgspec.Struct, frozen=True, kw_only=True):
    """Of which objects of Ray this process is in charge."""

    namespaces: tuple[str, ...] = ()
    """Where they are; everywhere if empty."""
    trusted: TrustedNamespaces = kuberay_namespaces()
    """Where a Lease of KubeRay's operator is believed."""
    alone_in: str | None = None
    """The one namespace in which such a Lease is looked for; None for all."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server reaches the webhooks."""

    service: str
    """Name of the Service, of the Secret with the certificates, and of the webhook configuration."""
    namespace: str
    port: int = 9443
    host: str | None = None
    """Listen on this address only, and be called by it: for an API server that cannot reach the Service."""
    client_authorities: bytes | None = None
    """PEM. Callers must show a certificate of theirs; without it, anybody is answered."""
    ray: RayScope | None = None
    """None if this process does not look after Ray: it then says nothing about Ray."""


def build(runtime: Runtime, settings: Settings) -> None:
    """Add the webhook server to a process. It answers from the shared cache, and is ready when it has a certificate."""
    pools = runtime.cache(GPUPool)
    secret = Key(settings.service, settings.namespace)
    secrets = runtime.cache(Secret, Selection(settings.namespace, fields=f"metadata.name={settings.service}"))
    configurations = [
        runtime.cache(kind, Selection(fields=f"metadata.name={settings.service}")) for kind in _CONFIGURATIONS
    ]
    registry = runtime.metrics.registry
    certificates = ServingCertificates(
        runtime.unfenced_client,
        secret,
        Subject(settings.service, (settings.host or f"{settings.service}.{settings.namespace}.svc",)),
        publisher(runtime.unfenced_client, [(kind, settings.service) for kind in _CONFIGURATIONS]),
        client_authorities=settings.client_authorities,
        registry=registry,
        events=runtime.events,
    )
    server = WebhookServer(certificates.tls, host=settings.host, port=settings.port, metrics=WebhookMetrics(registry))

    async def validate(request: AdmissionRequest[GPUPool]) -> AdmissionResponse:
        if request.object is None:
            return allow()
        await pools.synced()
        return review(request.object, request.old_object, pools, settings.namespace)

    server.validating(POOLS, GPUPool, validate)
    server.mutating(PODS, Pod, PodReviews(pools, runtime.cache(GPUNodeState)).review)
    server.mutating(DEVICES, GPUDevice, _approval_reviews(pools, runtime.cache(Node)))
    _add_rays(server, runtime, settings.ray, pools)
    secrets.on_change(lambda _old, _new: certificates.wake())
    for cache in configurations:
        cache.on_change(lambda _old, _new: certificates.wake())
    runtime.status.ready("webhook certificate", certificates.problem)
    runtime.service(lambda: serve_webhooks(server, certificates))


def _add_rays(server: WebhookServer, runtime: Runtime, scope: RayScope | None, pools: Cache[GPUPool]) -> None:
    """Reviews of the kinds of Ray."""
    lease = None
    if scope is not None:
        lease = LeaseReader(runtime, KUBERAY_LEASE, scope.trusted.include, namespace=scope.alone_in)
    rays = RayReviews(scope, lease)
    server.validating(RAYS[RayCluster.resource.plural], RayCluster, rays.of(cluster_problems))
    server.validating(RAYS[RayJob.resource.plural], RayJob, rays.of(job_problems))
    server.validating(RAYS[RayService.resource.plural], RayService, rays.of(service_problems))
    server.validating(RAYS[RayCronJob.resource.plural], RayCronJob, rays.of(cronjob_problems))
    server.mutating(RAY_CLUSTERS, RayCluster, rays.filling(pools))


class RayReviews:
    """Reviews objects of Ray by the rules of their kind, and refuses nothing that KubeRay's operator carries out."""

    def __init__(self, scope: RayScope | None, lease: LeaseReader | None) -> None:
        self._scope = scope
        self._lease = lease

    def of[T: Ray](self, problems: Callable[[T], tuple[Problem, ...]]) -> Handler[T]:
        """Reviews of one kind, by its rules."""

        async def reviewed(request: AdmissionRequest[T]) -> AdmissionResponse:
            if request.object is None or not self._looks_after(request.namespace):
                return allow()
            return review_ray(request.object, request.old_object, problems, only_warn=await self._is_kuberays())

        return reviewed

    def filling(self, pools: Cache[GPUPool]) -> Handler[RayCluster]:
        """Reviews that fill in what Ray's autoscaler would not see of the GPUs of pools."""
        live = LivePools()
        pools.on_change(live.changed)

        async def reviewed(request: AdmissionRequest[RayCluster]) -> AdmissionResponse:
            if request.object is None or not self._looks_after(request.namespace) or await self._is_kuberays():
                return allow()
            await pools.synced()
            return fill_gpus(request.object, request.document(), live.current)

        return reviewed

    def _looks_after(self, namespace: str | None) -> bool:
        return self._scope is not None and (not self._scope.namespaces or namespace in self._scope.namespaces)

    async def _is_kuberays(self) -> bool:
        """Whether KubeRay's operator carries out what is written."""
        if self._lease is None:
            return False
        await self._lease.synced()
        return self._lease.active() is not None


def _approval_reviews(pools: Cache[GPUPool], nodes: Cache[Node]) -> Handler[GPUDevice]:
    """Reviews of GPUDevices from the caches of pools and nodes."""

    async def reviewed(request: AdmissionRequest[GPUDevice]) -> AdmissionResponse:
        before, after = request.old_object, request.object
        if before is None or after is None:
            return allow()
        await pools.synced()
        await nodes.synced()
        pool = pools.get(after.metadata.annotations.get(Annotation.ASSIGNMENT, ""))
        node = nodes.get(after.spec.node_name)
        labels = node.metadata.labels if node is not None else {}
        return review_approval(before, after, request.document(), request.user.username, pool=pool, node_labels=labels)

    return reviewed


class PodReviews:
    """Reviews Pods from the caches of pools and nodes."""

    def __init__(self, pools: Cache[GPUPool], states: Cache[GPUNodeState]) -> None:
        self._pools = pools
        self._states = states
        self._largest = LargestNodes()
        states.on_change(self._largest.changed)
        pools.index(_RESOURCE, lambda pool: {pool.resource_name, *pool.resource_names})

    async def review(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        if request.operation is not Operation.CREATE or request.object is None:
            return allow()
        try:
            asked = request.object.extended_resources
        except ValueError:
            return allow()  # The API server refuses it.
        if not asked:
            return allow()
        await self._pools.synced()
        await self._states.synced()
        return review_pod(asked, self._offers(asked), request.document(), request.uid)

    def _offers(self, asked: Iterable[str]) -> dict[str, Offer]:
        """The pools behind the resources. Of several with one name, the oldest has it."""
        offers: dict[str, Offer] = {}
        for resource in asked:
            found = self._pools.by_index(_RESOURCE, resource)
            if found:
                pool = min(found, key=lambda pool: (resource not in pool.resource_names, by_age(pool)))
                offers[resource] = Offer(pool, self._largest.units(resource))
        return offers
