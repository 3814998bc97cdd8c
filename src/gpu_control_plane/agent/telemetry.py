"""When readings are written to a GPUDevice: when their class changes, such as idle to busy, not with every number.

Metrics have the numbers. With 40,000 cards a write for every reading would overload the API server.
"""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.api.gpudevice import BUSY_PERCENT, Telemetry

_WARM_CELSIUS: Final = 75
_HOT_CELSIUS: Final = 90


class _Class(msgspec.Struct, frozen=True):
    """Readings of the same class are not written again."""

    busy: bool | None
    heat: int | None
    ecc_errors: int | None
    last_xid: int | None


def telemetry_to_write(held: Telemetry | None, readings: Readings, signals: Signals, now: datetime) -> Telemetry:
    """What the card's status should have: what it has already, unless the class of a reading has changed."""
    current = Telemetry(
        temperature=readings.temperature,
        power=readings.power,
        utilisation=readings.utilisation,
        memory_used=readings.memory_used,
        ecc_errors=signals.uncorrected_ecc,
        last_xid=signals.xids[-1] if signals.xids else None,
        at=now.replace(microsecond=0),
    )
    return held if held is not None and _class(held) == _class(current) else current


def _class(telemetry: Telemetry) -> _Class:
    busy, heat = telemetry.utilisation, telemetry.temperature
    return _Class(
        busy=None if busy is None else busy >= BUSY_PERCENT,
        heat=None if heat is None else (heat >= _WARM_CELSIUS) + (heat >= _HOT_CELSIUS),
        ecc_errors=telemetry.ecc_errors,
        last_xid=telemetry.last_xid,
    )
