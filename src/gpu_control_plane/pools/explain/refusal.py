"""Why a pod was not even created: the sentence of whatever refused it, sorted by cause. Pure.

A pod that is refused has no object. What made it (a ReplicaSet, a Job) keeps the sentence, in a condition or an Event.
"""

import re

from gpu_control_plane.pools.explain.explanation import Cause, Explanation

_QUOTA = re.compile(r"exceeded quota: (?P<quota>\S+?),")
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<policy>gpu-[a-z-]+)'")
_POOL_QUOTA = "gpu-pool-"


def explain_refusal(message: str, namespace: str) -> Explanation:
    """What this message of the API server means for the person who wants the pod."""
    if (quota := _QUOTA.search(message)) is not None:
        name = quota["quota"]
        pool = name.removeprefix(_POOL_QUOTA) if name.startswith(_POOL_QUOTA) else ""
        edit = f"`kubectl edit gpupool {pool}`" if pool else f"`kubectl edit resourcequota {name} -n {namespace}`"
        return Explanation(
            cause=Cause.QUOTA,
            pool=pool,
            sentence=f"the quota {name} of the namespace {namespace} is used up: {message}",
            user="it is tried again by itself when pods of the namespace have ended; or ask for a higher limit",
            admin=f"raise the limit: {edit}",
        )
    if _POLICY.search(message) is not None:
        return Explanation(
            cause=Cause.NO_ACCESS,
            sentence=message,
            user="ask for a pool that this namespace may use, or ask an administrator for access",
            admin="name the namespace or the service account in spec.access of the pool",
        )
    return Explanation(
        cause=Cause.REFUSED,
        sentence=message,
        user="correct what the message names; the pod is tried again by itself",
    )
