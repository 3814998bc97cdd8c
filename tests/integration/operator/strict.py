"""Whether a real API server takes an object as it is, field by field, without keeping it."""

import msgspec

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.operator.stack.live import CORE_KINDS
from gpu_control_plane.operator.stack.manifest import Manifest

_RESOURCES = {kind.resource.kind: kind.resource for kind in CORE_KINDS}


async def accept(client: Client, manifest: Manifest, namespace: str) -> None:
    """Raise what the API server says against an object. Kinds that only some clusters have are not asked about."""
    resource = _RESOURCES.get(manifest["kind"])
    if resource is None:
        return
    call = Call(
        method="POST",
        path=resource.path(namespace if resource.namespaced else None),
        verb="create",
        resource=resource.qualified_name,
        params={"fieldValidation": "Strict", "dryRun": "All"},
        body=msgspec.json.encode({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}),
    )
    await client.transport.send(call)
