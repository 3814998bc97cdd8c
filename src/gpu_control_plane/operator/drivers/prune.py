"""Which DaemonSets of an NVIDIADriver are not needed any more. Pure.

A driver is never removed from a node that would then have none. A DaemonSet that serves no node is deleted. One whose
nodes all have a successor is deleted as well, but its pods run on: the upgrade replaces them node by node.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.operator.node_facts import selects
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.views import DaemonSet


class OutdatedDaemonSet(msgspec.Struct, frozen=True):
    """A DaemonSet to delete; `orphan` says that its pods run on."""

    name: str
    orphan: bool = False


def outdated_daemonsets(
    held: Iterable[DaemonSet], rendered: Sequence[Manifest], nodes: Sequence[Node]
) -> list[OutdatedDaemonSet]:
    """Those of an NVIDIADriver's DaemonSets that should be deleted, by name."""
    kept = [manifest for manifest in rendered if manifest["kind"] == "DaemonSet"]
    names = {manifest["metadata"]["name"] for manifest in kept}
    successors = [manifest["spec"]["template"]["spec"]["nodeSelector"] for manifest in kept]
    found = []
    for daemonset in sorted(held, key=lambda item: item.name):
        if daemonset.name in names or daemonset.deleting:
            continue
        own = daemonset.spec.template.spec.node_selector
        selected = [node.metadata.labels for node in nodes if selects(own, node.metadata.labels)]
        if not selected and daemonset.idle:
            found.append(OutdatedDaemonSet(daemonset.name))
        elif selected and all(any(selects(selector, labels) for selector in successors) for labels in selected):
            found.append(OutdatedDaemonSet(daemonset.name, orphan=True))
    return found
