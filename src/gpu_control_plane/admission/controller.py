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


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server reaches the webhooks."""

    service: str
    """Name of the Service. The Secret with the certificates and the configuration of the webhooks have it, too."""
    namespace: str
    port: int = 9443


def build(runtime: Runtime, options: Options) -> None:
    """Declare the webhook server: it answers from the shared cache, and is ready when it has a certificate."""
    pools = runtime.cache(GPUPool)
    secret = Key(options.service, options.namespace)
    secrets = runtime.cache(Secret, Selection(options.namespace, fields=f"metadata.name={options.service}"))
    configurations = runtime.cache(ValidatingWebhookConfiguration, Selection(fields=f"metadata.name={options.service}"))
    registry = runtime.metrics.registry
    certificates = ServingCertificates(
        runtime.unfenced_client,
        secret,
        Subject(options.service, (f"{options.service}.{options.namespace}.svc",)),
        publisher(runtime.unfenced_client, [(ValidatingWebhookConfiguration, options.service)]),
        registry=registry,
    )
    server = WebhookServer(certificates.tls, port=options.port, metrics=WebhookMetrics(registry))

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
