"""Installs the webhook configurations into a cluster without the chart, which brings them itself."""

from pathlib import Path
from typing import Final

from gpu_control_plane.installation.one_shot import run_in_cluster
from gpu_control_plane.kube.ca_bundle import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookConfiguration,
)
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.objects import FieldManager
from gpu_control_plane.rules.webhook_configuration import NAME, webhook_configurations

MANAGER: Final = FieldManager("gpu-control-plane-webhooks")

_KINDS: Final[dict[str, type[WebhookConfiguration]]] = {
    kind.resource.kind: kind for kind in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
}


def install_webhooks(kubeconfig: Path, url: str) -> None:
    """Let the API server of this kubeconfig call the webhooks at `url`. For programs without a loop."""
    run_in_cluster(kubeconfig, lambda client: install(client, url))


async def install(client: Client, url: str) -> None:
    """Apply the configurations. Their `caBundle` is the controller's, and stays."""
    for manifest in webhook_configurations(lambda path: {"url": f"{url}{path}"}):
        await client.apply(_KINDS[manifest["kind"]], NAME, manifest, manager=MANAGER)
