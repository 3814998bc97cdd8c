"""Finalizers, added and removed by patches with a resourceVersion, so that entries of other controllers are kept."""

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Object


async def add_finalizer[T: Object](client: Client, item: T, finalizer: str) -> T:
    """Make the deletion of `item` wait for this finalizer; writes only where it is missing."""
    if finalizer in item.metadata.finalizers:
        return item
    return await _set(client, item, (*item.metadata.finalizers, finalizer))


async def remove_finalizer(client: Client, item: Object, finalizer: str) -> None:
    """Let the deletion of `item` go on; one that is gone already is no error."""
    if finalizer not in item.metadata.finalizers:
        return
    try:
        await _set(client, item, tuple(held for held in item.metadata.finalizers if held != finalizer))
    except NotFound:
        return


async def _set[T: Object](client: Client, item: T, finalizers: tuple[str, ...]) -> T:
    meta = item.metadata
    return await client.patch(
        type(item),
        meta.name,
        {"metadata": {"finalizers": list(finalizers)}},
        namespace=meta.namespace,
        resource_version=meta.resource_version,
    )
