"""CRDs of other products, and CRDs that have to go."""

import copy
from typing import Any

from gpu_control_plane.installation.crds import GENERATED_MARK
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.crd import CustomResourceDefinition, Definition
from gpu_control_plane.kube.errors import NotFound
from waiting import until_async


def foreign(definition: Definition) -> dict[str, Any]:
    """The kind as another product defines it: marked as generated, and with looser types."""
    ours = definition.manifest({GENERATED_MARK: "v0.19.0"})
    version = copy.deepcopy(ours["spec"]["versions"][0])
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {**ours, "spec": {**ours["spec"], "versions": [version]}}


async def remove_crd(client: Client, name: str) -> None:
    if not await crd_is_gone(client, name):
        await client.delete(CustomResourceDefinition, name)
    await until_async(lambda: crd_is_gone(client, name), saying=f"{name} is gone")


async def crd_is_gone(client: Client, name: str) -> bool:
    try:
        await client.get(CustomResourceDefinition, name)
    except NotFound:
        return True
    return False
