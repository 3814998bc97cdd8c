"""In which namespaces NVIDIA's operator, its operands and KubeRay's operator are believed.

The API does not say who wrote an object, and whoever may edit one namespace may create Leases, and Pods with any label,
there. A Lease of NVIDIA's operator keeps ours from writing, and an operand that is lost, or one too many, keeps cards
from pools. So both count only in namespaces that no user has. The same holds for the Lease of KubeRay's operator.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE

USUAL_NAMESPACES: Final = frozenset({"gpu-operator", "nvidia-gpu-operator", "gpu-operator-resources"})
"""Where NVIDIA's operator and its operands are installed: by its chart, on OpenShift, and by old releases."""


KUBERAY_NAMESPACES: Final = frozenset(
    {"kuberay-operator", "kuberay", "kuberay-system", "ray-system", "opendatahub", "redhat-ods-applications"}
)
"""Where KubeRay's operator is installed: by its documentation and by platforms that bring it. Not `default`, where its
chart lands without a namespace: users write there, so the settings have to name it."""


class TrustedNamespaces(msgspec.Struct, frozen=True):
    """Our own namespace, the usual ones of another operator, and those that the settings name."""

    more: frozenset[str] = frozenset()
    own: str = DEFAULT_NAMESPACE
    """Where our own programs run."""
    usual: frozenset[str] = USUAL_NAMESPACES
    """The usual ones; NVIDIA's if nothing is said."""

    def include(self, namespace: str | None) -> bool:
        return namespace == self.own or namespace in self.usual or namespace in self.more


def kuberay_namespaces(more: Iterable[str] = (), own: str = DEFAULT_NAMESPACE) -> TrustedNamespaces:
    """Where KubeRay's operator is believed."""
    return TrustedNamespaces(frozenset(more), own=own, usual=KUBERAY_NAMESPACES)
