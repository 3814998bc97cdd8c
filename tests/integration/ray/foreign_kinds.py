"""Kinds of other programs on an API server that has none of these programs: objects of them are kept as they are."""

from contextlib import suppress

from gpu_control_plane.kube import Client, Object
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import AlreadyExists, NotFound
from waiting import until_async


async def serve(client: Client, *kinds: type[Object]) -> None:
    """Return when the API server has the kinds."""
    for kind in kinds:
        with suppress(AlreadyExists):
            await client.create(CustomResourceDefinition, _definition(kind))
    for kind in kinds:

        async def is_served(kind: type[Object] = kind) -> bool:
            try:
                await client.list(kind)
            except NotFound:
                return False
            return True

        await until_async(is_served, within=20, saying=f"{kind.resource.qualified_name} is not served")


def _definition(kind: type[Object]) -> dict[str, object]:
    resource = kind.resource
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "metadata": {
            "name": resource.qualified_name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": resource.kind, "plural": resource.plural},
            "versions": [version],
        },
    }
