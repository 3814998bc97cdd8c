"""One merge patch to a Node with the differences and nothing else."""

from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Client
from gpu_control_plane.operator.labelling.decide import Change


async def patch_node(client: Client, node: Node, change: Change) -> None:
    """Write `change`, unless the Node has changed since it was decided on: then `Conflict`."""
    metadata: dict[str, object] = {}
    if change.labels:
        metadata["labels"] = change.labels
    if change.annotations:
        metadata["annotations"] = change.annotations
    await client.patch(Node, node.name, {"metadata": metadata}, resource_version=node.metadata.resource_version)
