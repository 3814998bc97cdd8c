"""Which nodes are managed: those with cards, unless a label of the Node takes them out, or has yet to bring them in.

The chart places our programs by the same rule, and passes the label and the default to the controllers.
"""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.api.names import GPU_LABELS, Label
from gpu_control_plane.api.node import Node


def has_gpu_label(labels: Mapping[str, str]) -> bool:
    """Whether a Node carries one of the labels that bring the agent to it."""
    return any(labels.get(label) == "true" for label in GPU_LABELS)


class ManagedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The label, and whether nodes without it are managed."""

    label: str = Label.ENABLED.value
    by_default: bool = True

    def include(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is managed, if it has cards."""
        value = labels.get(self.label)
        return value != "false" if self.by_default else value == "true"

    def why_not(self, node: Node) -> str:
        """The message about a node that is not managed, with the command that changes it."""
        if self.by_default:
            kept, change = f"the label {self.label}=false keeps our programs away from it", f"{self.label}-"
        else:
            kept, change = f"it does not have the label {self.label}=true", f"{self.label}=true --overwrite"
        return (
            f"The node is not managed: {kept}. Pods keep their cards, and no pod gets a new one. "
            f"To have it managed: `kubectl label node {node.name} {change}`."
        )
