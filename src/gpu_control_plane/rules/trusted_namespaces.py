"""In which namespaces NVIDIA's operator and its operands are believed.

The API does not say who wrote an object, and whoever may edit one namespace may create Leases, and Pods with any label,
there. A Lease of NVIDIA's operator keeps ours from writing, and an operand that is lost, or one too many, keeps cards
from pools. So both count only in namespaces that no user has.
"""

from typing import Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE

USUAL_NAMESPACES: Final = frozenset({"gpu-operator", "nvidia-gpu-operator", "gpu-operator-resources"})
"""Where NVIDIA's operator and its operands are installed: by its chart, on OpenShift, and by old releases."""


class TrustedNamespaces(msgspec.Struct, frozen=True):
    """Our own namespace, the usual ones of NVIDIA's operator, and those that the settings name."""

    more: frozenset[str] = frozenset()
    own: str = DEFAULT_NAMESPACE
    """Where our own programs run."""

    def include(self, namespace: str | None) -> bool:
        return namespace == self.own or namespace in USUAL_NAMESPACES or namespace in self.more
