"""What a card is doing: computing, held by a pod that does nothing with it, free, or out of service.

People buy cards while others hold theirs idle, so «in use» is told apart into two.
"""

from gpu_control_plane.api.gpudevice import BUSY_PERCENT, DeviceState, GPUDevice
from gpu_control_plane.kube.fields import OpenEnum


class Load(OpenEnum):
    """What a card is doing."""

    COMPUTING = "Computing", f"a pod has it, and it is busy at least {BUSY_PERCENT} % of the time."
    HELD_IDLE = "HeldIdle", f"a pod has it, and it is busy less than {BUSY_PERCENT} % of the time."
    HELD = "Held", "a pod has it; whether it computes is not measured, as of a card that is divided by MIG."
    FREE = "Free", "in a pool and with no pod."
    OUT_OF_SERVICE = "OutOfService", "no pod can get it: faulted, ignored, leaving its pool, or in none."

    @property
    def held(self) -> bool:
        """Whether a pod has it."""
        return self in {Load.COMPUTING, Load.HELD_IDLE, Load.HELD}


_IN_SERVICE = frozenset({DeviceState.ASSIGNED, DeviceState.RESERVED})


def load_of(card: GPUDevice) -> Load:
    """The card's load, by its users and the class of its last reading: the agent writes one whenever that changes."""
    status = card.status
    if status.state is DeviceState.FAULTED:
        return Load.OUT_OF_SERVICE
    if status.used_by:
        busy = status.telemetry.utilisation if status.telemetry is not None else None
        if busy is None:
            return Load.HELD
        return Load.COMPUTING if busy >= BUSY_PERCENT else Load.HELD_IDLE
    return Load.FREE if status.state in _IN_SERVICE and not card.ignored else Load.OUT_OF_SERVICE
