"""Driver pods that no DaemonSet has. Pure.

A hand-over leaves them behind, for upgrades to replace one after the other; until then they need their account. Where
neither a ClusterPolicy nor an NVIDIADriver is left, nobody will replace them: they go, as all other drivers have gone
with whoever had asked for them.
"""

from gpu_control_plane.operator.stack.daemonset_readiness import of_the_policy
from gpu_control_plane.operator.upgrade.caches import is_driver
from gpu_control_plane.operator.views import OperandPod, controller_of


def without_owner(pod: OperandPod) -> bool:
    """Whether it is a pod of a driver, or of a vGPU manager, that no DaemonSet has, and that is not going yet."""
    return (is_driver(pod) or of_the_policy(pod)) and controller_of(pod) is None and not pod.deleting


def came_or_went(old: OperandPod | None, new: OperandPod | None) -> bool:
    """Whether there is one more of them, or one less."""
    before, after = (pod is not None and without_owner(pod) for pod in (old, new))
    return before != after
