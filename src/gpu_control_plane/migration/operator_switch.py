"""Switches between the operators: scales another one to zero and deletes its Lease, or scales it up again.

Every step can be repeated: after an interruption the command is run once more. Nothing is deleted but the Lease; an
annotation of the Deployment keeps how many replicas it had.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Cache, Client, Selection
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.migration.deployment import Deployment
from gpu_control_plane.migration.other_operator import (
    REPLICAS_BEFORE,
    TAKEN_FROM,
    OtherOperator,
    current_holder,
    holder_pod,
    operator_deployments,
    our_lease,
    trusted_leases,
)


class SwitchError(KubeError):
    """The operators cannot be switched; the message says why and what to do."""


class SwitchResult(msgspec.Struct, frozen=True):
    """What was found and done."""

    namespace: str
    name: str
    replicas: int
    """After a take-over how many there were before, 0 if that is not known; after a give-back how many there are."""
    lease_deleted: bool = False
    other_holder: LeaseHolder | None = None
    """Another replica of that operator that is still active."""


async def find_operator(client: Client, what: OtherOperator, own_namespace: str, namespace: str | None) -> Deployment:
    """The one Deployment of another operator. Our controllers run in `own_namespace`."""
    found = await operator_deployments(client, own_namespace, namespace, what=what)
    if not found:
        if namespace:
            raise SwitchError(
                f"{what.words} was not found in namespace {namespace}. Leave --namespace out to look everywhere."
            )
        raise SwitchError(
            f"{what.words} was not found in this cluster. If it has no labels of its chart, and holds no Lease, "
            "scale its Deployment to zero by hand."
        )
    if len(found) > 1:
        places = ", ".join(str(one.key) for one in found)
        raise SwitchError(f"{what.words} is there more than once: {places}. Choose one with --namespace.")
    return found[0]


async def our_controller_runs(client: Client, namespace: str) -> bool:
    """Whether one of our controllers in `namespace` leads at this moment, and would start to work."""
    return current_holder(await client.list(TimedLease, our_lease(namespace)), utc_now()) is not None


async def take_over(
    client: Client,
    what: OtherOperator,
    operator: Deployment,
    own_namespace: str,
    *,
    progress: Callable[[str], None] = lambda _text: None,
    timeout: float = 180.0,
) -> SwitchResult:
    """Scale the other operator to zero, wait until its pods are gone, and delete its Lease."""
    place = operator.metadata.namespace or ""
    replicas = operator.replicas or _remembered(operator)
    if operator.replicas:
        await client.patch(
            Deployment,
            operator.name,
            {
                "metadata": {"annotations": {REPLICAS_BEFORE: str(replicas), TAKEN_FROM: what.lease}},
                "spec": {"replicas": 0},
            },
            namespace=place,
            resource_version=operator.metadata.resource_version,
        )
    await _wait_until_gone(client, Selection(place, labels=operator.selector), progress, timeout, what)
    deleted = await _delete_lease(client, place, what)
    now, trusted = utc_now(), what.trusted(own_namespace)
    left = trusted_leases(await client.list(TimedLease, lease_selection(what.lease)), trusted)
    other = active_holder((observe(lease, now) for lease in left), now)
    return SwitchResult(place, operator.name, replicas, lease_deleted=deleted, other_holder=other)


async def give_back(client: Client, operator: Deployment) -> SwitchResult:
    """Scale the other operator to as many replicas as it had. It takes its Lease, and ours stops writing by itself."""
    place = operator.metadata.namespace or ""
    replicas = operator.replicas or _remembered(operator) or 1
    if operator.replicas and REPLICAS_BEFORE not in operator.metadata.annotations:
        return SwitchResult(place, operator.name, replicas)
    await client.patch(
        Deployment,
        operator.name,
        {"metadata": {"annotations": {REPLICAS_BEFORE: None, TAKEN_FROM: None}}, "spec": {"replicas": replicas}},
        namespace=place,
        resource_version=operator.metadata.resource_version,
    )
    return SwitchResult(place, operator.name, replicas)


def _remembered(operator: Deployment) -> int:
    """How many replicas an earlier take-over found; 0 if there was none, or if the annotation cannot be read."""
    noted = operator.metadata.annotations.get(REPLICAS_BEFORE, "")
    return int(noted) if noted.isdecimal() else 0


async def _wait_until_gone(
    client: Client, selection: Selection, progress: Callable[[str], None], timeout: float, what: OtherOperator
) -> None:
    """Wait until there is no pod of a selection, by a watch."""
    pods = Cache(Pod, ApiSource(client, Pod, selection), metrics=client.metrics)
    changed = asyncio.Event()
    pods.on_change(lambda _old, _new: changed.set())
    watching = asyncio.create_task(pods.run())
    try:
        async with asyncio.timeout(timeout):
            await pods.synced()
            while len(pods):
                progress(f"{len(pods)} left: {', '.join(sorted(pod.name for pod in pods))}")
                changed.clear()
                await changed.wait()
    except TimeoutError:
        names = ", ".join(sorted(pod.name for pod in pods)) or "of which nothing was heard"
        raise SwitchError(
            f"Pods of {what.words} are still there after {timeout:g} s: {names}. Its Lease was left alone; "
            "see why they do not end (kubectl describe pod), then run the command again."
        ) from None
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def _delete_lease(client: Client, namespace: str, what: OtherOperator) -> bool:
    """Delete the Lease that is left, but not one that was created in its place meanwhile."""
    try:
        lease = await client.get(TimedLease, what.lease, namespace)
        if (pod := await holder_pod(client, lease)) is not None:
            raise SwitchError(
                f"{pod.key} holds the Lease of {what.words} and does not belong to this Deployment. "
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
