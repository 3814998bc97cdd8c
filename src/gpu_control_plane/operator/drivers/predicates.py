"""Which changes concern NVIDIADrivers, and which NVIDIADriver owns an object. Pure."""

from typing import Any, Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import TRUE, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import Key
from gpu_control_plane.kube.objects import Object, OwnerReference, controller_of
from gpu_control_plane.kube.signal import Keyed
from gpu_control_plane.operator.node_facts import is_gpu_node, node_kind
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.live import content_changed as live_content_changed
from gpu_control_plane.operator.views import DaemonSet

ALL: Final = Key("nvidia-drivers")
"""The one key under which all NVIDIADrivers are reconciled."""

_AT_REST: Final = frozenset({UpgradeState.NONE.value, UpgradeState.DONE.value})


def all_drivers(_item: Keyed) -> tuple[Key, ...]:
    return (ALL,)


def node_changed(old: Node | None, new: Node | None) -> bool:
    """Whether a node has another owner, or is of another kind."""
    return _owner_and_kind(old) != _owner_and_kind(new)


def content_changed(old: Live | None, new: Live | None) -> bool:
    """Whether an object of an NVIDIADriver, or a ConfigMap that people made, was changed by any writer."""
    held = new or old
    if held is None or (held.resource.kind != "ConfigMap" and not owner_uid(held)):
        return False
    return live_content_changed(old, new)


def daemonsets_changed(old: DaemonSet | None, new: DaemonSet | None) -> bool:
    """Whether a DaemonSet of an NVIDIADriver was created or has gone."""
    created, deleted = new if old is None else None, old if new is None else None
    return any(item is not None and bool(owner_uid(item)) for item in (created, deleted))


def owner_uid(item: Object) -> str:
    """The UID of the NVIDIADriver that owns an object; empty if none does."""
    owner = _owner(item)
    return owner.uid if owner is not None else ""


def owner_name(item: Object) -> str:
    """The name of the NVIDIADriver that owns an object; empty if none does."""
    owner = _owner(item)
    return owner.name if owner is not None else ""


def upgrading(node: Node) -> bool:
    """Whether the driver of a node with an owner is being replaced, or waits for that."""
    labels = node.metadata.labels
    state = labels.get(NodeLabel.UPGRADE_STATE, "")
    return NodeLabel.DRIVER_OWNER in labels and state not in _AT_REST and labels.get(NodeLabel.UPGRADE_SKIP) != TRUE


def _owner(item: Object) -> OwnerReference | None:
    owner = controller_of(item)
    return owner if owner is not None and owner.kind == StoredNVIDIADriver.resource.kind else None


def _owner_and_kind(node: Node | None) -> tuple[Any, ...] | None:
    if node is None or not is_gpu_node(node.metadata.labels):
        return None
    return node.metadata.labels.get(NodeLabel.DRIVER_OWNER), node_kind(node)
