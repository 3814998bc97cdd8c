"""The programs of a GPU node that run as pods, and what each of them is there for.

Ours come from the chart, NVIDIA's from a ClusterPolicy or from NVIDIA's own operator. Where two of them do the same, a
node is degraded; which of them run is configuration and none of our business here.
"""

import enum
from typing import Final

from gpu_control_plane.api.nodefeature import NAMESPACE
from gpu_control_plane.api.pod import NAME_LABEL, Pod
from gpu_control_plane.kube import Selection


class Operand(enum.StrEnum):
    """A program, by the name people know it by."""

    AGENT = "agent"
    GFD = "gpu-feature-discovery"
    DCGM = "dcgm"
    EXPORTER = "dcgm-exporter"
    VALIDATOR = "validator"
    NVIDIA_DRIVER = "nvidia-driver-daemonset"
    NVIDIA_TOOLKIT = "nvidia-container-toolkit-daemonset"
    NVIDIA_PLUGIN = "nvidia-device-plugin-daemonset"
    NVIDIA_GFD = "NVIDIA gpu-feature-discovery"
    NVIDIA_DCGM = "nvidia-dcgm"
    NVIDIA_EXPORTER = "nvidia-dcgm-exporter"
    OTHER_EXPORTER = "NVIDIA dcgm-exporter"
    NVIDIA_VALIDATOR = "nvidia-operator-validator"


OURS: Final = {
    operand.value: operand
    for operand in (Operand.AGENT, Operand.GFD, Operand.DCGM, Operand.EXPORTER, Operand.VALIDATOR)
}
"""By the label `app.kubernetes.io/component` of the chart's pods."""
NVIDIA: Final = {
    "nvidia-driver-daemonset": Operand.NVIDIA_DRIVER,
    "nvidia-container-toolkit-daemonset": Operand.NVIDIA_TOOLKIT,
    "nvidia-device-plugin-daemonset": Operand.NVIDIA_PLUGIN,
    "gpu-feature-discovery": Operand.NVIDIA_GFD,
    "nvidia-dcgm": Operand.NVIDIA_DCGM,
    "nvidia-dcgm-exporter": Operand.NVIDIA_EXPORTER,
    "nvidia-operator-validator": Operand.NVIDIA_VALIDATOR,
}
"""By the label `app` of NVIDIA's pods."""
OTHERS: Final = {"dcgm-exporter": Operand.OTHER_EXPORTER}
"""By the label `app.kubernetes.io/name` of pods that come from a chart of their own."""

_APP: Final = "app"
_ELSEWHERE: Final = f"metadata.namespace!={NAMESPACE}"

POD_SELECTIONS: Final = (
    Selection(namespace=NAMESPACE),
    Selection(labels=f"{_APP} in ({','.join(sorted(NVIDIA))})", fields=_ELSEWHERE),
    Selection(labels=f"{NAME_LABEL} in ({','.join(sorted(OTHERS))})", fields=_ELSEWHERE),
)
"""Where operands are found: our namespace as a whole, which inventory and the operator watch, too; pods of NVIDIA's
operator in any other namespace; pods of charts of their own there. A label selector knows no «or», so the last two are
two watches. No pod of a node is held twice."""


def operand_of(pod: Pod) -> Operand | None:
    """The program that a pod is; None for any other pod. A pod of ours is known by our labels, whatever else it has."""
    labels = pod.metadata.labels
    if pod.component is not None:
        return OURS.get(pod.component)
    return NVIDIA.get(labels.get(_APP, "")) or OTHERS.get(labels.get(NAME_LABEL, ""))


LABELLERS: Final = (Operand.GFD, Operand.NVIDIA_GFD)
EXPORTERS: Final = (Operand.EXPORTER, Operand.NVIDIA_EXPORTER, Operand.OTHER_EXPORTER)
HOST_ENGINES: Final = {Operand.EXPORTER: Operand.DCGM, Operand.NVIDIA_EXPORTER: Operand.NVIDIA_DCGM}
"""What an exporter asks for its readings, where that is a pod of its own."""
VALIDATORS: Final = (Operand.VALIDATOR, Operand.NVIDIA_VALIDATOR)
LABELLING_OPTION: Final = "--labels"
"""The option that makes the agent a labeller."""
NO_CHECKS_OPTION: Final = "--no-validator"
"""The option without which the agent checks its node."""
