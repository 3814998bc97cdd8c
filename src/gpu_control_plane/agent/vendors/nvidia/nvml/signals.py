"""What the driver reports about the health of a card."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Recovery, Signals
from gpu_control_plane.agent.vendors.nvidia.nvml.fabric_info import fabric_pending
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library

_RECOVERY_ACTION: Final = 230
_RECOVERIES: Final = {**{int(action): action for action in Recovery}, 6: Recovery.RESET, 7: Recovery.REBOOT}
"""Newer drivers ask for a reset of the bus or a restart of the system, which a person does like the others."""
_HARDWARE_THERMAL: Final = 0x40
_OVERHEATED_SECONDS: Final = 10.0
"""A slowdown of this length makes a card overheated."""


def clock_reasons(library: Library, handle: object) -> int | None:
    """Why the card does not run at full speed, as a bit mask. Older drivers have another name for it."""
    reasons: int | None = library.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    return library.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if reasons is None else reasons


class ThermalSlowdown:
    """Tells a card that stays too hot from one that was too hot for a moment.

    Only the slowdown that the hardware enforces counts, and only if it lasts. The driver's own thermal slowdown keeps a
    busy card within its limits: programs go on, and in a warm room it comes and goes all day.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def overheated(self, address: str, reasons: int | None) -> bool:
        if not (reasons or 0) & _HARDWARE_THERMAL:
            self._since.pop(address, None)
            return False
        return self._clock() - self._since.setdefault(address, self._clock()) >= _OVERHEATED_SECONDS


def probe(library: Library, handle: object, address: str, slowdown: ThermalSlowdown, reported: Signals) -> Signals:
    """The health signals of a card, beside what the driver has reported of it; raises CardLost."""
    nvml = library.nvml
    uncorrected, corrected = (
        library.ask("nvmlDeviceGetTotalEccErrors", handle, kind, nvml.NVML_VOLATILE_ECC) or 0
        for kind in (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)
    )
    _, _, pending, failed = library.ask("nvmlDeviceGetRemappedRows", handle) or (0, 0, 0, 0)
    action = library.field(handle, _RECOVERY_ACTION)
    return msgspec.structs.replace(
        reported,
        uncorrected_ecc=uncorrected,
        corrected_ecc=corrected,
        remap_pending=bool(pending),
        remap_failed=bool(failed),
        overheated=slowdown.overheated(address, clock_reasons(library, handle)),
        # An action of a future driver is taken seriously.
        recovery=_RECOVERIES.get(int(action or 0), Recovery.REBOOT),
        fabric_pending=fabric_pending(library, handle),
    )
