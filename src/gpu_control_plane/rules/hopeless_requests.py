"""Requests for a pool's resource that waiting cannot cure: pods are refused for them, groups of Ray say so. Pure."""

import enum
from collections.abc import Collection
from typing import Final

from gpu_control_plane.api.names import GROUP

_PREFIX: Final = f"{GROUP}/"


class Hopeless(enum.Enum):
    """Why no card will ever come, as long as nobody changes something."""

    NO_POOL = enum.auto()
    """No pool offers the resource. One of another domain is not ours to judge."""
    NOT_OFFERED = enum.auto()
    """The pool offers others: those of a mixed layout."""
    DELETING = enum.auto()
    TOO_LARGE = enum.auto()
    """No node has so many units."""


def why_hopeless(
    resource: str, units: int, *, offered: Collection[str] | None, deleting: bool, largest: int
) -> Hopeless | None:
    """Why a pod that asks for so many units could never start; None if it may.

    `offered` are the resources of the pool with this name, None without one; `largest` is what the node with the most
    units has, 0 while no node has any: cards may come.
    """
    if offered is None:
        return Hopeless.NO_POOL if resource.startswith(_PREFIX) else None
    if resource not in offered:
        return Hopeless.NOT_OFFERED
    if deleting:
        return Hopeless.DELETING
    return Hopeless.TOO_LARGE if 0 < largest < units else None
