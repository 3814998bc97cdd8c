"""Why a Pod gets no card, in a sentence for the person who waits for it. Pure."""

from collections.abc import Mapping

from gpu_control_plane.api.gpupool import GPUPool, PoolPhase
from gpu_control_plane.api.names import GROUP, Annotation
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.conditions import FALSE
from gpu_control_plane.kube.objects import Condition


def pending_message(pod: Pod, pools: Mapping[str, GPUPool], approvable: Mapping[str, list[str]]) -> str | None:
    """What the Pod waits for and what to do; None for a Pod that does not wait for cards.

    `pools` are by resource name, and `approvable` lists the cards that wait for an approval by pool.
    """
    resources = {name for container in pod.spec.containers for name in container.resources.limits}
    for resource in sorted(resources):
        pool = pools.get(resource)
        if pool is not None:
            return _about_pool(pod.limit_of(resource), pool, approvable.get(pool.name, []))
        if resource.startswith(f"{GROUP}/"):
            return f"there is no pool with the resource {resource}: `kubectl get gpupools` shows those there are"
    return None


def _about_pool(count: int, pool: GPUPool, approvable: list[str]) -> str:
    status = pool.status
    units = status.units
    free = units.available + units.reserved if units else 0
    cards = "1 card" if count == 1 else f"{count} cards"
    if status.phase is PoolPhase.MISCONFIGURED:
        return f"the pool {pool.name} is misconfigured: {_message(status.conditions)}"
    if units is None or units.total == 0:
        sentence = f"the pool {pool.name} has no cards"
    elif free >= count:
        sentence = f"the pool {pool.name} has {free} free, but no single node has {cards} free"
    else:
        sentence = (
            f"{cards} of the pool {pool.name} asked for: {free} free, {units.used} in use, "
            f"{units.faulted} faulted, {units.total} in all"
        )
    if approvable:
        advice = f"kubectl annotate gpudevice {approvable[0]} {Annotation.ASSIGNMENT}={pool.name}"
        waiting = "1 card waits" if len(approvable) == 1 else f"{len(approvable)} cards wait"
        return f"{sentence}; {waiting} for approval: `{advice}`"
    return f"{sentence}; it starts when cards become free"


def _message(conditions: tuple[Condition, ...]) -> str:
    return next((condition.message for condition in conditions if condition.status == FALSE), "see its conditions")
