"""Waiting, without an event loop, for what happens in other processes."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], within: float = 60.0) -> None:
    """Return when the condition holds; fail after a while."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within:g} s"
        time.sleep(0.02)
