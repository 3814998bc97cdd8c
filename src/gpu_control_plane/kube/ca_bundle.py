"""Telling the API server which authority to trust when it calls webhooks.

Like a reconcile: safe to call at any time and any number of times. It writes only where the bundle differs, so that a
watch can drive it: it repairs what is removed and is not woken by its own writes for ever.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import msgspec
import structlog

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Object, Resource

_GROUP = "admissionregistration.k8s.io"

_log = structlog.get_logger(component="kube.webhooks")


class WebhookConfiguration(Object, frozen=True, kw_only=True):
    """What the two kinds of configuration have in common. Webhooks are kept whole: a merge patch replaces them all."""

    webhooks: tuple[dict[str, object], ...] = ()

    def trusts(self, bundle: bytes) -> bool:
        """Whether every webhook has exactly this bundle."""
        return all(held == bundle for _, held in self.bundles)

    @property
    def bundles(self) -> tuple[tuple[str, bytes], ...]:
        """The name and the bundle of every webhook."""
        return tuple((str(webhook.get("name", "")), _client_config(webhook).ca_bundle) for webhook in self.webhooks)

    @property
    def calls_a_service(self) -> bool:
        """Whether a webhook is called through a Service, and not by a URL."""
        return any(_client_config(webhook).service is not None for webhook in self.webhooks)


class ValidatingWebhookConfiguration(WebhookConfiguration, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(
        _GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
    )


class MutatingWebhookConfiguration(WebhookConfiguration, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(
        _GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
    )


async def ensure_ca_bundle(client: Client, kind: type[WebhookConfiguration], name: str, bundle: bytes) -> bool:
    """Give every webhook of a configuration the bundle; true when that took a write.

    A configuration that does not exist is no error: no webhook is called through it. Raises `Conflict` when it has
    changed in the meantime: try again, with the bundle that is current by then.
    """
    try:
        found = await client.get(kind, name)
    except NotFound:
        return False
    if found.trusts(bundle):
        return False
    webhooks = [_trusting(webhook, bundle) for webhook in found.webhooks]
    await client.patch(kind, name, {"webhooks": webhooks}, resource_version=found.metadata.resource_version)
    _log.info("CA bundle written", kind=kind.resource.kind, name=name)
    return True


def publisher(
    client: Client, configurations: Sequence[tuple[type[WebhookConfiguration], str]]
) -> Callable[[bytes], Awaitable[bool]]:
    """What `ServingCertificates` publishes with: it brings a bundle to all these configurations."""

    async def publish(bundle: bytes) -> bool:
        written = [await ensure_ca_bundle(client, kind, name, bundle) for kind, name in configurations]
        return any(written)

    return publish


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: bytes = b""
    service: dict[str, object] | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


def _client_config(webhook: dict[str, object]) -> _ClientConfig:
    return msgspec.convert(webhook, _Webhook).client_config


def _trusting(webhook: dict[str, object], bundle: bytes) -> dict[str, object]:
    known = webhook.get("clientConfig")
    fields = known if isinstance(known, dict) else {}
    return {**webhook, "clientConfig": {**fields, "caBundle": bundle}}
