"""When readings are worth a write: at changes of class, such as idle to busy, never because a number moved.

Metrics carry the numbers. At 40,000 cards a write for every reading would keep the API server busy with nothing else.
"""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.api.gpudevice import Telemetry

_BUSY_PERCENT: Final = 5
_WARM: Final = 75
_HOT: Final = 90


class _Class(msgspec.Struct, frozen=True):
    """What has to differ for readings to be told."""

    busy: bool | None
    heat: int | None
    ecc_errors: int | None
    last_xid: int | None


def worth_telling(held: Telemetry | None, readings: Readings, signals: Signals, now: datetime) -> Telemetry:
    """What the card's status should say: what it says already, unless the class of a reading has changed."""
    fresh = Telemetry(
        temperature=readings.temperature,
        power=readings.power,
        utilisation=readings.utilisation,
        memory_used=readings.memory_used,
        ecc_errors=signals.uncorrected_ecc,
        last_xid=signals.xids[-1] if signals.xids else None,
        at=now.replace(microsecond=0),
    )
    return held if held is not None and _class(held) == _class(fresh) else fresh


def _class(telemetry: Telemetry) -> _Class:
    busy, heat = telemetry.utilisation, telemetry.temperature
    return _Class(
        busy=None if busy is None else busy >= _BUSY_PERCENT,
        heat=None if heat is None else (heat >= _WARM) + (heat >= _HOT),
        ecc_errors=telemetry.ecc_errors,
        last_xid=telemetry.last_xid,
    )
