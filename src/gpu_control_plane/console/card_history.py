"""What cards have shown since this console was started, as their agents told it. Prometheus knows more.

Agents write when a card becomes busy, idle, hot or cool: there are few readings. The latest 400,000 of all cards are
kept, 28 bytes each; of a card one a minute, a day of them.
"""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.views.cards import Readings, readings_of

_MOST: Final = 400_000
_MOST_OF_A_CARD: Final = 24 * 60
_MINUTE_SECONDS: Final = 60
_ROW: Final = struct.Struct("<Iqiiii")
"""When it was read, the number of the card's reading before it, and what was read."""
_NOT_MEASURED: Final = -(2**31)
_LARGEST: Final = 2**31 - 1
_NEVER: Final = -1


class CardHistory:
    """A ring of readings. Each knows the one before it of the same card; the oldest are overwritten first."""

    def __init__(self, since: datetime, *, most: int = _MOST) -> None:
        self.since = since
        self._most = most
        self._rows = bytearray()
        self._read = 0
        """How many were kept so far: the number of the next one."""
        self._latest: dict[str, int] = {}

    def follow(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        """For `Cache.on_change`. Another card at the same address begins anew."""
        if old is not None and (new is None or _is_another(old, new)):
            self._latest.pop(old.name, None)
        if new is not None and (old is None or old.status.telemetry != new.status.telemetry):
            self.record(new, datetime.now(UTC))

    def record(self, card: GPUDevice, now: datetime) -> None:
        """Keep what the card shows. Of a minute, the last reading stays."""
        read = readings_of(card)
        if read is None:
            return
        at = int(max(self.since, min(read.at, now)).timestamp())
        number, before = self._read, self._latest.get(card.name, _NEVER)
        known = self._row(before)
        if known is not None:
            at = max(at, known[0])
            if at // _MINUTE_SECONDS == known[0] // _MINUTE_SECONDS:
                number, at, before = before, known[0], known[1]
        shown = (read.utilisation, read.temperature, read.power, read.memory_used_mib)
        self._write(number, _ROW.pack(at, before, *map(_stored, shown)))
        self._latest[card.name] = number

    def of(self, card: str, now: datetime) -> Sequence[Readings]:
        """What the card has shown, the oldest first. What it showed last holds until this minute."""
        found: list[Readings] = []
        number = self._latest.get(card, _NEVER)
        while (row := self._row(number)) is not None and len(found) < _MOST_OF_A_CARD:
            at, number, *stored = row
            busy, temperature, power, memory = map(_shown, stored)
            found.append(
                Readings(
                    at=datetime.fromtimestamp(at, UTC),
                    utilisation=busy,
                    temperature=temperature,
                    power=power,
                    memory_used_mib=memory,
                )
            )
        found.reverse()
        minute = now.replace(second=0, microsecond=0)
        if found and found[-1].at < minute:
            found.append(msgspec.structs.replace(found[-1], at=minute))
        return found

    def _row(self, number: int) -> tuple[int, ...] | None:
        """None where there is none, or where it was overwritten."""
        if number < 0 or number < self._read - self._most:
            return None
        return _ROW.unpack_from(self._rows, number % self._most * _ROW.size)

    def _write(self, number: int, row: bytes) -> None:
        start = number % self._most * _ROW.size
        self._rows[start : start + _ROW.size] = row
        self._read = max(self._read, number + 1)


def _is_another(old: GPUDevice, new: GPUDevice) -> bool:
    """Whether the address has another card now. One whose driver is gone tells no identity, and is the same."""
    known = {card.status.hardware.uuid for card in (old, new) if card.status.hardware is not None}
    return len(known - {None}) > 1


def _stored(value: int | None) -> int:
    return _NOT_MEASURED if value is None else max(-_LARGEST, min(value, _LARGEST))


def _shown(value: int) -> int | None:
    return None if value == _NOT_MEASURED else value
