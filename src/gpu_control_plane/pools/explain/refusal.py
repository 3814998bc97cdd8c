"""Why a pod was not even created: the sentence of whatever refused it, sorted by cause. Pure.

A pod that is refused has no object. What made it (a ReplicaSet, a Job) keeps the sentence, in a condition or an Event.
Whoever may write in the namespace may write such an Event, too: nothing of it gets into a command but a valid name.
"""

import re

from gpu_control_plane.kube.sentences import one_line
from gpu_control_plane.pools.explain.explanation import Cause, Explanation

_DENIED = re.compile(r"denied (?:the )?request: ")
_QUOTA = re.compile(r"exceeded quota: (?P<quota>[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?),")
_POOL_QUOTA = "gpu-pool-"
_OWN_WORDS = (
    (re.compile(r"which no GPU pool offers"), Cause.NO_SUCH_POOL),
    (re.compile(r"the GPU pool \S+ admits|one of these GPU pools admits"), Cause.NO_ACCESS),
    (re.compile(r"The GPU pool \S+ is being deleted"), Cause.POOL_DELETED),
    (re.compile(r"The GPU pool \S+ is in maintenance"), Cause.MAINTENANCE),
    (re.compile(r"and no node has more than \d+"), Cause.TOO_MANY),
)
"""What our policies and webhooks say when they refuse a pod. They say what to do, too."""


def explain_refusal(message: str, namespace: str) -> Explanation:
    """What this message of the API server means for the person who wants the pod."""
    message = one_line(message)
    if (quota := _QUOTA.search(message)) is not None:
        return _over_quota(message, quota["quota"], namespace)
    words = _DENIED.split(message)[-1]
    cause = next((cause for pattern, cause in _OWN_WORDS if pattern.search(words)), Cause.REFUSED)
    return Explanation(
        cause=cause,
        sentence=words.rstrip("."),
        user="do as the message says; what makes the pod tries again by itself",
    )


def _over_quota(message: str, name: str, namespace: str) -> Explanation:
    pool = name.removeprefix(_POOL_QUOTA) if name.startswith(_POOL_QUOTA) else ""
    edit = f"`kubectl edit gpupool {pool}`" if pool else f"`kubectl edit resourcequota {name} -n {namespace}`"
    return Explanation(
        cause=Cause.QUOTA,
        pool=pool,
        sentence=f"the quota {name} of the namespace {namespace} is used up: {message}",
        user="it is tried again by itself when pods of the namespace have ended; or ask for a higher limit",
        admin=f"raise the limit: {edit}",
    )
