"""A reason why an object of Ray cannot be carried out, in words of its author."""

from collections.abc import Iterable
from typing import Final

import msgspec

SPEC: Final = "Spec"
METADATA: Final = "Metadata"


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    reason: str
    """KubeRay's word for it, as its Events have it: InvalidRayClusterSpec, InvalidRayJobMetadata, …"""
    path: str
    """The field, such as `spec.workerGroupSpecs[0].minReplicas`."""
    message: str
    """What is wrong with it, and what to do: the end of a sentence that begins with the path."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What validation has to know of the cluster."""

    cert_manager: bool = True
    """Whether cert-manager's kinds are served: TLS needs them."""


def sentences(problems: Iterable[Problem]) -> str:
    """All of them as one text for a condition, an Event or an answer."""
    return " ".join(f"{problem}." for problem in problems)
