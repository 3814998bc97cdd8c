"""Lets DaemonSets go that select each other's pods, and leaves the pods running: all at once, or a DaemonSet that is
still there would adopt what another one leaves behind, and remove it where it is not meant to be.

A DaemonSet that is being deleted makes, adopts and removes nothing, and exists as long as a finalizer holds it. So all
of them are deleted under one; when the last stands still their pods are made nobody's, and then the finalizers go.
Whoever finds some that stand still goes on from there.
"""

from collections.abc import Iterable
from typing import Final

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.kube import Client, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.finalizers import add_finalizer, remove_finalizer
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.operator.views import OperandPod

HELD: Final = f"{GROUP}/pods-run-on"


def stands_still(daemonset: Object) -> bool:
    """Whether somebody began to let it go."""
    return daemonset.deleting and HELD in daemonset.metadata.finalizers


async def let_go(client: Client, daemonsets: Iterable[LiveDaemonSet], namespace: str) -> None:
    """Delete DaemonSets in such a way that their pods become nobody's."""
    await gather_all(_stop(client, item) for item in daemonsets)
    await finish(client, namespace)


async def finish(client: Client, namespace: str) -> int:
    """Let all DaemonSets go that stand still; how many there were."""
    still = list(filter(stands_still, await client.list(LiveDaemonSet, Selection(namespace=namespace))))
    if still:
        owners = {item.metadata.uid for item in still}
        pods = await client.list(OperandPod, Selection(namespace=namespace))
        await gather_all(make_nobodys(client, pod) for pod in pods if _uid_of_owner(pod) in owners)
        await gather_all(remove_finalizer(client, item, HELD) for item in still)
    return len(still)


async def make_nobodys(client: Client, pod: OperandPod, *, without: Iterable[str] = ()) -> None:
    """Let a pod run on without an owner, and `without` some labels by which one would find it again."""
    meta = pod.metadata
    released = {"uid": meta.uid, "ownerReferences": None, "labels": dict.fromkeys(without)}
    try:
        await client.patch(OperandPod, meta.name, {"metadata": released}, namespace=meta.namespace)
    except NotFound:
        return


async def _stop(client: Client, item: LiveDaemonSet) -> None:
    meta = item.metadata
    try:
        await add_finalizer(client, item, HELD)
        await client.delete(LiveDaemonSet, meta.name, meta.namespace, uid=meta.uid, propagation="Background")
    except NotFound:
        return  # somebody was faster


def _uid_of_owner(pod: OperandPod) -> str:
    return pod.controller.uid if pod.controller is not None else ""
