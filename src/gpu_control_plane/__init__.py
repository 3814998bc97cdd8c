"""A GPU control plane for Kubernetes."""

from typing import Final

__version__ = "0.1.0"

DEFAULT_NAMESPACE: Final = "d8-gpu-operator"
"""Where our programs run and agents publish their reports, unless they are told another namespace: the chart tells each
of them the namespace of its release. It is a default of options and settings; what needs the namespace is given it."""
