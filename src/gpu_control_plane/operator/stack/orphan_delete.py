"""Deletes DaemonSets that select each other's pods, and leaves the pods running.

They have to go together: a DaemonSet that is still active would adopt the pods that another one leaves behind, and
delete them from nodes that it is not for. A DaemonSet that is being deleted creates, adopts and deletes no pods, and
exists as long as a finalizer holds it. So all of them are deleted under our finalizer; then their pods are released
from their owners, and then the finalizers are removed. A process that finds some under the finalizer goes on from
there.
"""

from collections.abc import Iterable
from typing import Final

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.finalizers import add_finalizer, remove_finalizer
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.operator.stack.live import LiveDaemonSet

FINALIZER: Final = f"{GROUP}/pods-run-on"


def held_for_orphaning(daemonset: Object) -> bool:
    """Whether it is being deleted under our finalizer."""
    return daemonset.deleting and FINALIZER in daemonset.metadata.finalizers


async def delete_and_orphan_pods(client: Client, daemonsets: Iterable[LiveDaemonSet], namespace: str) -> None:
    """Delete DaemonSets and leave their pods without an owner."""
    await gather_all(_delete_under_finalizer(client, item) for item in daemonsets)
    await finish_orphan_deletes(client, namespace)


async def finish_orphan_deletes(client: Client, namespace: str) -> int:
    """Release the pods of all DaemonSets that are held, then the DaemonSets; the number of DaemonSets."""
    held = list(filter(held_for_orphaning, await client.list(LiveDaemonSet, Selection(namespace=namespace))))
    if held:
        owners = {item.metadata.uid for item in held}
        pods = await client.list(Pod, Selection(namespace=namespace))
        await gather_all(release_pod(client, pod) for pod in pods if _uid_of_owner(pod) in owners)
        await gather_all(remove_finalizer(client, item, FINALIZER) for item in held)
    return len(held)


async def release_pod(client: Client, pod: Pod, *, without: Iterable[str] = ()) -> None:
    """Remove a pod's owner, and the labels `without`, by which a DaemonSet would select and adopt it again."""
    meta = pod.metadata
    released = {"uid": meta.uid, "ownerReferences": None, "labels": dict.fromkeys(without)}
    try:
        await client.patch(Pod, meta.name, {"metadata": released}, namespace=meta.namespace)
    except NotFound:
        return


async def _delete_under_finalizer(client: Client, item: LiveDaemonSet) -> None:
    """Both writes are of what was read: if it has changed, whether it is to be deleted is decided anew."""
    try:
        meta = (await add_finalizer(client, item, FINALIZER)).metadata
        await client.delete(
            LiveDaemonSet,
            meta.name,
            meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            propagation="Background",
        )
    except NotFound:
        return  # it was deleted meanwhile


def _uid_of_owner(pod: Pod) -> str:
    return pod.controller.uid if pod.controller is not None else ""
