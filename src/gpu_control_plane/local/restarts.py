"""When to restart a component that ended: at once, then with growing delays. Pure."""

import msgspec

_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 30.0
_STABLE_SECONDS = 60.0


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """A component's restarts, as far as the next delay depends on them."""

    total: int = 0
    in_a_row: int = 0
    launched_at: float = 0.0
    next_at: float | None = None
    """When to launch again; None while it runs."""

    def died(self, now: float) -> "Restarts":
        """It ended by itself. One that ran for a minute is restarted at once again."""
        row = 0 if now - self.launched_at >= _STABLE_SECONDS else self.in_a_row
        delay = 0.0 if row == 0 else min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2**row)
        return msgspec.structs.replace(self, in_a_row=row + 1, next_at=now + delay)

    def launched(self, now: float) -> "Restarts":
        return msgspec.structs.replace(self, total=self.total + 1, launched_at=now, next_at=None)

    def without_delay(self, now: float) -> "Restarts":
        """A restart is due at once, and later delays start from the shortest again."""
        return self if self.next_at is None else msgspec.structs.replace(self, next_at=now, in_a_row=0)

    def due(self, now: float) -> bool:
        return self.next_at is not None and now >= self.next_at
