"""The change of hands: NVIDIA's operator is sent to rest and its Lease removed, or it is woken again.

Every step can be repeated: who was interrupted runs the command once more. Nothing is deleted but the Lease; the
Deployment remembers in an annotation how many replicas it had.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import Cache, Client, Selection
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.operator.migration.installation import BEFORE, OURS, Deployment, live, operators, pod_of
from gpu_control_plane.operator.nvidia_lease import SELECTION, Rival, TimedLease, judge
from gpu_control_plane.operator.views import Pod


class HandoverError(KubeError):
    """The hands cannot change; the message says why and what to do."""


class Outcome(msgspec.Struct, frozen=True):
    """What was found and done."""

    namespace: str
    name: str
    replicas: int
    """How many there were before a take-over, 0 if nobody knows, or are after a give-back."""
    lease_deleted: bool = False
    rival: Rival | None = None
    """Another operator of NVIDIA's that is still in charge."""


async def find(client: Client, namespace: str | None) -> Deployment:
    """The one Deployment of NVIDIA's operator."""
    found = await operators(client, namespace)
    if not found:
        if namespace:
            raise HandoverError(
                f"NVIDIA's operator was not found in namespace {namespace}. Leave --namespace out to look everywhere."
            )
        raise HandoverError(
            "NVIDIA's operator was not found in this cluster. If it has no labels of its chart, and holds no Lease, "
            "scale its Deployment to zero by hand."
        )
    if len(found) > 1:
        places = ", ".join(str(one.key) for one in found)
        raise HandoverError(f"NVIDIA's operator is there more than once: {places}. Choose one with --namespace.")
    return found[0]


async def ours_runs(client: Client) -> bool:
    """Whether one of our controllers leads at this moment, and would begin."""
    leases = await client.list(TimedLease, Selection(fields=f"metadata.name={OURS}"))
    return live(leases, utc_now()) is not None


async def take_over(
    client: Client,
    operator: Deployment,
    *,
    progress: Callable[[str], None] = lambda _text: None,
    patience: float = 180.0,
) -> Outcome:
    """Scale NVIDIA's operator to zero, wait until its pods are gone, and delete its Lease."""
    place = operator.metadata.namespace or ""
    replicas = operator.replicas or _remembered(operator)
    if operator.replicas:
        await client.patch(
            Deployment,
            operator.name,
            {"metadata": {"annotations": {BEFORE: str(replicas)}}, "spec": {"replicas": 0}},
            namespace=place,
            resource_version=operator.metadata.resource_version,
        )
    await _gone(client, Selection(place, labels=operator.selector), progress, patience)
    deleted = await _delete_lease(client, place)
    rest = judge(await client.list(TimedLease, SELECTION), utc_now())
    return Outcome(place, operator.name, replicas, lease_deleted=deleted, rival=rest)


async def give_back(client: Client, operator: Deployment) -> Outcome:
    """Scale NVIDIA's operator to as many replicas as it had. It takes its Lease, and ours steps back by itself."""
    place = operator.metadata.namespace or ""
    replicas = operator.replicas or _remembered(operator) or 1
    if operator.replicas and BEFORE not in operator.metadata.annotations:
        return Outcome(place, operator.name, replicas)
    await client.patch(
        Deployment,
        operator.name,
        {"metadata": {"annotations": {BEFORE: None}}, "spec": {"replicas": replicas}},
        namespace=place,
        resource_version=operator.metadata.resource_version,
    )
    return Outcome(place, operator.name, replicas)


def _remembered(operator: Deployment) -> int:
    """How many replicas an earlier take-over found; 0 if there was none, or if somebody has spoilt its note."""
    noted = operator.metadata.annotations.get(BEFORE, "")
    return int(noted) if noted.isdecimal() else 0


async def _gone(client: Client, selection: Selection, progress: Callable[[str], None], patience: float) -> None:
    """Wait for the end of all pods of a selection, told by a watch."""
    pods = Cache(Pod, ApiSource(client, Pod, selection), metrics=client.metrics)
    changed = asyncio.Event()
    pods.on_change(lambda _old, _new: changed.set())
    watching = asyncio.create_task(pods.run())
    try:
        async with asyncio.timeout(patience):
            await pods.synced()
            while len(pods):
                progress(f"{len(pods)} left: {', '.join(sorted(pod.name for pod in pods))}")
                changed.clear()
                await changed.wait()
    except TimeoutError:
        names = ", ".join(sorted(pod.name for pod in pods)) or "of which nothing was heard"
        raise HandoverError(
            f"Pods of NVIDIA's operator are still there after {patience:g} s: {names}. Its Lease was left alone; "
            "see why they do not end (kubectl describe pod), then run the command again."
        ) from None
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def _delete_lease(client: Client, namespace: str) -> bool:
    """Delete the Lease that was left behind, and no other that somebody makes in its place meanwhile."""
    try:
        lease = await client.get(TimedLease, LEASE, namespace)
        if (pod := await pod_of(client, lease)) is not None:
            raise HandoverError(
                f"{pod.key} holds the Lease of NVIDIA's operator and does not belong to this Deployment. "
                "Stop it first, then run the command again."
            )
        await client.delete(
            TimedLease,
            lease.name,
            namespace,
            uid=lease.metadata.uid,
            resource_version=lease.metadata.resource_version,
        )
    except NotFound:
        return False
    return True
