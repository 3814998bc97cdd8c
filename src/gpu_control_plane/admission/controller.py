"""Serves the webhooks, on every replica, with certificates of its own."""

from typing import Final

import msgspec

from gpu_control_plane.admission.pools import review
from gpu_control_plane.api import GPUPool
from gpu_control_plane.kube import Key, Runtime, Selection
from gpu_control_plane.kube.admission import AdmissionRequest, AdmissionResponse, allow
from gpu_control_plane.kube.ca_bundle import ValidatingWebhookConfiguration, publisher
from gpu_control_plane.kube.certificate_rotation import Subject
from gpu_control_plane.kube.certificate_secret import Secret, ServingCertificates
from gpu_control_plane.kube.webhooks import WebhookMetrics, WebhookServer, serve_webhooks

POOLS: Final = "/validate-gpupool"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server reaches the webhooks."""

    service: str
    """Name of the Service, of the Secret with the certificates, and of the webhook configuration."""
    namespace: str
    port: int = 9443
    client_authorities: bytes | None = None
    """PEM. Callers must show a certificate of theirs; without it, anybody is answered."""


def build(runtime: Runtime, settings: Settings) -> None:
    """Add the webhook server to a process. It answers from the shared cache, and is ready when it has a certificate."""
    pools = runtime.cache(GPUPool)
    secret = Key(settings.service, settings.namespace)
    secrets = runtime.cache(Secret, Selection(settings.namespace, fields=f"metadata.name={settings.service}"))
    configurations = runtime.cache(
        ValidatingWebhookConfiguration, Selection(fields=f"metadata.name={settings.service}")
    )
    registry = runtime.metrics.registry
    certificates = ServingCertificates(
        runtime.unfenced_client,
        secret,
        Subject(settings.service, (f"{settings.service}.{settings.namespace}.svc",)),
        publisher(runtime.unfenced_client, [(ValidatingWebhookConfiguration, settings.service)]),
        client_authorities=settings.client_authorities,
        registry=registry,
        events=runtime.events,
    )
    server = WebhookServer(certificates.tls, port=settings.port, metrics=WebhookMetrics(registry))

    async def validate(request: AdmissionRequest[GPUPool]) -> AdmissionResponse:
        if request.object is None:
            return allow()
        await pools.synced()
        return review(request.object, request.old_object, pools)

    server.validating(POOLS, GPUPool, validate)
    for cache in (secrets, configurations):
        cache.on_change(lambda _old, _new: certificates.wake())
    runtime.status.ready("webhook certificate", certificates.problem)
    runtime.service(lambda: serve_webhooks(server, certificates))
