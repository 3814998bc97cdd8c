"""When to start a component again after it died: at once, then ever more patiently. Pure."""

import msgspec

_FIRST = 0.5
_LONGEST = 30.0
_STEADY = 60.0


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """A component's history, as far as the next attempt depends on it."""

    total: int = 0
    in_a_row: int = 0
    launched_at: float = 0.0
    next_at: float | None = None
    """When to launch again; nothing while it runs."""

    def died(self, now: float) -> "Restarts":
        """It ended by itself. A component that ran well for a minute starts with a clean slate."""
        row = 0 if now - self.launched_at >= _STEADY else self.in_a_row
        delay = 0.0 if row == 0 else min(_LONGEST, _FIRST * 2**row)
        return msgspec.structs.replace(self, in_a_row=row + 1, next_at=now + delay)

    def launched(self, now: float) -> "Restarts":
        return msgspec.structs.replace(self, total=self.total + 1, launched_at=now, next_at=None)

    def hurried(self, now: float) -> "Restarts":
        """Somebody asked not to wait any longer."""
        return self if self.next_at is None else msgspec.structs.replace(self, next_at=now, in_a_row=0)

    def due(self, now: float) -> bool:
        return self.next_at is not None and now >= self.next_at
