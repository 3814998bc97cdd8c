"""The operands of a GPU node: the programs that run there as Pods, and what each of them provides.

Ours come from the chart, NVIDIA's from a ClusterPolicy or from NVIDIA's own operator. Which of them run is
configuration. Two that provide the same make a node Degraded.

Anybody who may edit a namespace may label Pods there as they like. So a Pod counts only in a namespace that no user
has, and only if a DaemonSet has made it, as all operands are made.
"""

import enum
from typing import Final

from gpu_control_plane.api.pod import NAME_LABEL, Pod
from gpu_control_plane.kube import Selection
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces


class Operand(enum.StrEnum):
    """An operand, by the name that conditions use for it."""

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
"""By the label `app.kubernetes.io/component` of the chart's Pods."""
NVIDIA: Final = {
    "nvidia-driver-daemonset": Operand.NVIDIA_DRIVER,
    "nvidia-container-toolkit-daemonset": Operand.NVIDIA_TOOLKIT,
    "nvidia-device-plugin-daemonset": Operand.NVIDIA_PLUGIN,
    "gpu-feature-discovery": Operand.NVIDIA_GFD,
    "nvidia-dcgm": Operand.NVIDIA_DCGM,
    "nvidia-dcgm-exporter": Operand.NVIDIA_EXPORTER,
    "nvidia-operator-validator": Operand.NVIDIA_VALIDATOR,
}
"""By the label `app` of NVIDIA's Pods."""
OTHERS: Final = {"dcgm-exporter": Operand.OTHER_EXPORTER}
"""By the label `app.kubernetes.io/name` of Pods that come from a chart of their own."""

LABELLERS: Final = (Operand.GFD, Operand.NVIDIA_GFD)
EXPORTERS: Final = (Operand.EXPORTER, Operand.NVIDIA_EXPORTER, Operand.OTHER_EXPORTER)
HOST_ENGINES: Final = {Operand.EXPORTER: Operand.DCGM, Operand.NVIDIA_EXPORTER: Operand.NVIDIA_DCGM}
"""The DCGM host engine that an exporter reads from, where that is a Pod of its own."""
VALIDATORS: Final = (Operand.VALIDATOR, Operand.NVIDIA_VALIDATOR)

_APP: Final = "app"
_DAEMONSET: Final = "DaemonSet"


def pod_selections(namespace: str) -> tuple[Selection, ...]:
    """Where operands are found: all Pods of our `namespace`, which inventory and the operator watch, too; Pods of
    NVIDIA's operator in any other namespace; Pods of charts of their own there. A label selector cannot say «or», so
    the last two are two watches. Each leaves our namespace out, so that no Pod is held twice. `is_trusted` says which
    of them count."""
    elsewhere = f"metadata.namespace!={namespace}"
    return (
        Selection(namespace=namespace),
        Selection(labels=f"{_APP} in ({','.join(sorted(NVIDIA))})", fields=elsewhere),
        Selection(labels=f"{NAME_LABEL} in ({','.join(sorted(OTHERS))})", fields=elsewhere),
    )


def is_trusted(pod: Pod, trusted: TrustedNamespaces) -> bool:
    """Whether a Pod was made by those who run the cluster: whoever could write it there has no need to deceive us."""
    made_by = pod.controller
    return trusted.include(pod.metadata.namespace) and made_by is not None and made_by.kind == _DAEMONSET


def operand_of(pod: Pod, namespace: str) -> Operand | None:
    """The operand that a Pod belongs to; None for any other Pod. Our own labels count more than any other, and only in
    our own `namespace`."""
    labels = pod.metadata.labels
    if pod.component is not None:
        return OURS.get(pod.component) if pod.metadata.namespace == namespace else None
    return NVIDIA.get(labels.get(_APP, "")) or OTHERS.get(labels.get(NAME_LABEL, ""))
