"""The extended resources in a Node's status: capacity counts every device, allocatable only the healthy ones.

As with a kubelet, a resource that is no longer served stays on the Node as "0": deleting the key would make it look as
if no plugin had ever served it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_control_plane.agent.views import NodeStatus
from gpu_control_plane.api.gpunodestate import Plugin
from gpu_control_plane.api.names import GROUP

_NOTHING: Final = "0"


def served(plugin: Plugin | None) -> set[str]:
    """The resources that a `status.plugin` names."""
    return {resource.name for resource in plugin.resources} if plugin else set()


def ours(status: NodeStatus, known: Iterable[str]) -> set[str]:
    """The resources of a Node that its agent looks after; those of other plugins are left alone."""
    return {*known, *(name for name in status.capacity if name.startswith(f"{GROUP}/"))}


def resource_changes(status: NodeStatus, plugin: Plugin, known: Iterable[str]) -> dict[str, dict[str, str]]:
    """The part of a Node's status to change so that it shows what the plugin advertises; empty when it does."""
    stale = dict.fromkeys(ours(status, known), _NOTHING)
    changes = {
        "capacity": _differing(
            {**_of(stale, status.capacity), **{each.name: str(each.units) for each in plugin.resources}},
            status.capacity,
        ),
        "allocatable": _differing(
            {**_of(stale, status.allocatable), **{each.name: str(each.healthy) for each in plugin.resources}},
            status.allocatable,
        ),
    }
    return {field: values for field, values in changes.items() if values}


def _of(stale: Mapping[str, str], observed: Mapping[str, str]) -> dict[str, str]:
    """What the Node does not show need not be taken off it."""
    return {name: value for name, value in stale.items() if name in observed}


def _differing(desired: Mapping[str, str], observed: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(desired.items()) if observed.get(name) != value}
