"""Which pods bring a driver to a node, by their labels, and on which nodes there are some.

The labels are those of NVIDIA's manifests: the pods of a ClusterPolicy's driver and vGPU manager have the label `app`,
those of an NVIDIADriver the component, and those that OpenShift's Driver Toolkit builds a label of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_control_plane.api.nvidia.names import TRUE, PodLabel
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Cache, Key, Signal
from gpu_control_plane.kube.objects import Object, controller_of

DRIVER_APP: Final = "nvidia-driver-daemonset"
DRIVER_COMPONENT: Final = "nvidia-driver"
VALIDATOR_APP: Final = "nvidia-operator-validator"
_VGPU_MANAGER_APP: Final = "nvidia-vgpu-manager-daemonset"
_TOOLKIT_BUILD: Final = "openshift.driver-toolkit"

DRIVER_SELECTORS: Final = (
    f"app in ({DRIVER_APP},{_VGPU_MANAGER_APP})",
    f"{PodLabel.COMPONENT}={DRIVER_COMPONENT}",
    f"{_TOOLKIT_BUILD}={TRUE}",
)
"""Label selectors: each pod of a driver or a vGPU manager is found by at least one of them."""

_NODE: Final = "operator/driver-pods"


def is_driver(item: Object) -> bool:
    """Whether it is a driver pod, or another object with the labels of one."""
    return has_driver_labels(item.metadata.labels)


def has_driver_labels(labels: Mapping[str, str]) -> bool:
    return (
        labels.get("app") == DRIVER_APP
        or labels.get(PodLabel.COMPONENT) == DRIVER_COMPONENT
        or labels.get(_TOOLKIT_BUILD) == TRUE
    )


def is_validator(pod: Object) -> bool:
    """Whether it is a pod of NVIDIA's validator, which checks a driver."""
    return pod.metadata.labels.get("app") == VALIDATOR_APP


def of_cluster_policy(pod: Object | None) -> bool:
    """Whether it is the pod of a driver or a vGPU manager that a ClusterPolicy has brought. One for a release of Red
    Hat CoreOS has the name of its own DaemonSet as `app`, which begins the same."""
    return pod is not None and pod.metadata.labels.get("app", "").startswith((DRIVER_APP, _VGPU_MANAGER_APP))


def is_orphan(pod: Pod) -> bool:
    """Whether it is the pod of a driver or a vGPU manager that no DaemonSet owns, and that is not being deleted."""
    return (is_driver(pod) or of_cluster_policy(pod)) and controller_of(pod) is None and not pod.deleting


def orphans_changed(old: Pod | None, new: Pod | None) -> bool:
    """Whether there is one orphan more, or one less."""
    before, after = (pod is not None and is_orphan(pod) for pod in (old, new))
    return before != after


class DriverPods:
    """On which nodes there are driver pods. `changed` is fired with the node's key when one has come, changed or
    gone."""

    def __init__(self, pods: Cache[Pod]) -> None:
        self._pods = pods
        pods.index(_NODE, _node)
        self.changed = Signal("driver-pods").watch(pods, lambda pod: map(Key, _node(pod)))

    def on(self, node: str) -> bool:
        return self._pods.count(_NODE, node) > 0


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if is_driver(pod) and pod.spec.node_name else ()
