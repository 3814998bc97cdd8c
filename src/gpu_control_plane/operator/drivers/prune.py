"""Which DaemonSets of an NVIDIADriver are no longer needed. Pure.

A driver is never taken away from a node that would then have none. One that serves no node goes; one whose nodes all
have a successor goes as well, but leaves its pods: the upgrade of each node replaces them in turn.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.views import DaemonSet


class Stale(msgspec.Struct, frozen=True):
    """A DaemonSet to delete; `orphan` says that its pods stay."""

    name: str
    orphan: bool = False


def stale(held: Iterable[DaemonSet], rendered: Sequence[Manifest], nodes: Sequence[Node]) -> list[Stale]:
    """Those of the DaemonSets an NVIDIADriver has that should go, by name."""
    kept = [manifest for manifest in rendered if manifest["kind"] == "DaemonSet"]
    names = {manifest["metadata"]["name"] for manifest in kept}
    successors = [manifest["spec"]["template"]["spec"]["nodeSelector"] for manifest in kept]
    found = []
    for daemonset in sorted(held, key=lambda item: item.name):
        if daemonset.name in names or daemonset.deleting:
            continue
        selected = [node for node in nodes if _selects(daemonset.spec.template.spec.node_selector, node)]
        if not selected and daemonset.idle:
            found.append(Stale(daemonset.name))
        elif selected and all(any(_selects(selector, node) for selector in successors) for node in selected):
            found.append(Stale(daemonset.name, orphan=True))
    return found


def _selects(selector: Mapping[str, str], node: Node) -> bool:
    labels = node.metadata.labels
    return all(labels.get(key) == value for key, value in selector.items())
