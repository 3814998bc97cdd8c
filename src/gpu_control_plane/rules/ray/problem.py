"""A reason why an object of Ray cannot be carried out, in words for its author."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.sentences import shortened

_PARTS: Final = {"metadata.name": "Metadata", "status": "Status"}
"""How reasons call what is not the spec."""
_MOST: Final = 20
_PATH_LIMIT: Final = 200
_MESSAGE_LIMIT: Final = 500
_MORE: Final = "more is wrong than is said here: mend this first"


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


type Fault = tuple[str, str]
"""Path and message."""
type Faults = Iterator[Fault]


def problems_of(item: Object, faults: Iterable[Fault]) -> tuple[Problem, ...]:
    """Faults of an object as problems, with the reasons of its kind: the first ones, and what users have written in
    them shortened. A spec has room for thousands of faults, and each may quote a text that is as long as the spec."""
    kind, found = item.resource.kind, iter(faults)
    problems = [
        Problem(f"Invalid{kind}{_part(path)}", shortened(path, _PATH_LIMIT), shortened(message, _MESSAGE_LIMIT))
        for path, message in islice(found, _MOST)
    ]
    if next(found, None) is not None:
        problems.append(Problem(f"Invalid{kind}Spec", "spec", _MORE))
    return tuple(problems)


def says_all(problems: Iterable[Problem]) -> bool:
    """Whether these are all the problems of the object."""
    return not any(problem.message == _MORE for problem in problems)


def sentences(problems: Iterable[Problem]) -> str:
    """All of them as one text for a condition, an Event or an answer."""
    return " ".join(f"{problem}." for problem in problems)


def _part(path: str) -> str:
    return next((part for begin, part in _PARTS.items() if path.startswith(begin)), "Spec")
