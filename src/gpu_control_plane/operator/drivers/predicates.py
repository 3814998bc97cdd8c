"""Which changes concern NVIDIADrivers, and whom an object belongs to. Pure."""

from typing import Any, Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import TRUE, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import Key
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.operator.node_facts import gpu_present, kind_of
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.live import touched as anybody_touched
from gpu_control_plane.operator.views import controller_of

ALL: Final = Key("nvidia-drivers")
"""The one key under which all of them are carried out."""

_SETTLED: Final = frozenset({UpgradeState.NONE.value, UpgradeState.DONE.value})


def asked_for(policy: ClusterPolicySpec | None) -> bool:
    """Whether drivers come from NVIDIADrivers. Without a ClusterPolicy there is nobody who says otherwise."""
    return policy is None or on(policy.driver.use_nvidia_driver_crd, absent=False)


def all_of_them(_item: Object) -> tuple[Key, ...]:
    return (ALL,)


def node_changed(old: Node | None, new: Node | None) -> bool:
    """Whether a node is another's now, or another kind of node."""
    return _facts(old) != _facts(new)


def touched(old: Live | None, new: Live | None) -> bool:
    """Whether somebody's hand was on an object of an NVIDIADriver, or on a ConfigMap that people made."""
    held = new or old
    if held is None or (held.resource.kind != "ConfigMap" and not owner_uid(held)):
        return False
    return anybody_touched(old, new)


def owner_uid(item: Object) -> str:
    """The UID of the NVIDIADriver that an object belongs to; empty if it belongs to none."""
    owner = controller_of(item)
    return owner.uid if owner is not None and owner.kind == StoredNVIDIADriver.resource.kind else ""


def owner_name(item: Object) -> str:
    """Its name; empty likewise."""
    owner = controller_of(item)
    return owner.name if owner is not None and owner.kind == StoredNVIDIADriver.resource.kind else ""


def upgrading(node: Node) -> bool:
    """Whether the driver of a node with an owner is being replaced, or waits for that."""
    labels = node.metadata.labels
    state = labels.get(NodeLabel.UPGRADE_STATE, "")
    return NodeLabel.DRIVER_OWNER in labels and state not in _SETTLED and labels.get(NodeLabel.UPGRADE_SKIP) != TRUE


def _facts(node: Node | None) -> tuple[Any, ...] | None:
    if node is None or not gpu_present(node.metadata.labels):
        return None
    return node.metadata.labels.get(NodeLabel.DRIVER_OWNER), kind_of(node)
