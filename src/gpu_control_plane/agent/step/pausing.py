"""Whether the agent has to release the driver. Pure.

Driver managers and upgrades announce themselves by labels on the Node that pause the operands around the driver. A
process that holds the driver open makes its reload fail, so each of these labels counts, whichever operand it names.
"""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.agent.vendors.registry import supported
from gpu_control_plane.api.names import GROUP

PAUSED: Final = "paused-for-"


def prefixes() -> tuple[str, ...]:
    """Those of the labels by which something is paused, whichever vendor's driver it is."""
    return (*(prefix for support in supported().values() for prefix in support.pause_labels), f"{GROUP}/deploy.")


def pause_reason(labels: Mapping[str, str]) -> str | None:
    """What the driver is wanted for, such as `paused-for-driver-upgrade`; None when the agent may hold it."""
    paused = [value for name, value in labels.items() if name.startswith(prefixes()) and PAUSED in value]
    # Where an operand's label said anything but `true`, the pause hangs on to that word: `agent_paused-for-…`.
    return min((value[value.index(PAUSED) :] for value in paused), default=None)
