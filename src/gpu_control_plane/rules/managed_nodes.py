"""Which nodes are managed: those with cards, unless a label of the Node takes them out, or has yet to bring them in.

The chart places our programs by the same rule and tells the controllers what it goes by.
"""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node


class ManagedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The rule: which label, and what goes for nodes without it."""

    label: str = Label.ENABLED.value
    by_default: bool = True

    def include(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is managed, if it has cards."""
        said = labels.get(self.label)
        return said != "false" if self.by_default else said == "true"

    def why_not(self, node: Node) -> str:
        """What to tell people of a node that is not managed, and how to have it back."""
        if self.by_default:
            kept, wish = f"the label {self.label}=false keeps our programs away from it", f"{self.label}-"
        else:
            kept, wish = f"it does not have the label {self.label}=true", f"{self.label}=true --overwrite"
        return (
            f"The node is not managed: {kept}. Pods keep their cards, and nobody gets one anew. "
            f"To have it managed: `kubectl label node {node.name} {wish}`."
        )
