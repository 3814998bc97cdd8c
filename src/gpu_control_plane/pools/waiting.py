"""Why a pod gets no card, in a sentence for the person who waits. Pure."""

from collections.abc import Mapping

from gpu_control_plane.api.gpupool import GPUPool, PoolPhase
from gpu_control_plane.api.names import GROUP, Annotation
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.objects import Condition

_FALSE = "False"


def explain(pod: Pod, pools: Mapping[str, GPUPool], pending: Mapping[str, list[str]]) -> str | None:
    """What the pod waits for and what to do; None for a pod that waits for something else.

    `pools` are found by resource name, and `pending` lists the cards that wait for an approval by pool.
    """
    asked = {name for container in pod.spec.containers for name in container.resources.limits}
    for resource in sorted(asked):
        pool = pools.get(resource)
        if pool is not None:
            return _about(pod.limit_of(resource), pool, pending.get(pool.name, []))
        if resource.startswith(f"{GROUP}/"):
            return f"there is no pool with the resource {resource}: `kubectl get gpupools` shows those there are"
    return None


def _about(wanted: int, pool: GPUPool, pending: list[str]) -> str:
    status = pool.status
    units = status.units
    cards = "1 card" if wanted == 1 else f"{wanted} cards"
    if status.phase is PoolPhase.MISCONFIGURED:
        return f"the pool {pool.name} is misconfigured: {_message(status.conditions)}"
    if units is None or units.total == 0:
        sentence = f"the pool {pool.name} has no cards"
    elif units.available >= wanted:
        sentence = f"the pool {pool.name} has {units.available} free, but no single node has {cards} free"
    else:
        sentence = (
            f"{cards} of the pool {pool.name} asked for: {units.available} free, {units.used} in use, "
            f"{units.faulted} faulted, {units.total} in all"
        )
    if pending:
        advice = f"kubectl annotate gpudevice {pending[0]} {Annotation.ASSIGNMENT}={pool.name}"
        waiting = "1 card waits" if len(pending) == 1 else f"{len(pending)} cards wait"
        return f"{sentence}; {waiting} for approval: `{advice}`"
    return f"{sentence}; it starts when cards become free"


def _message(conditions: tuple[Condition, ...]) -> str:
    return next((condition.message for condition in conditions if condition.status == _FALSE), "see its conditions")
