"""A GPU control plane for Kubernetes."""

from typing import Final

__version__ = "0.1.0"

NAMESPACE: Final = "d8-gpu-operator"
"""Where our programs run and agents publish their reports. It cannot be chosen, and the chart refuses any other."""
