"""An event loop in which time is a number and the order of things is drawn from a seed.

Nothing real happens: no sockets, no threads, no waiting. When nothing is ready, the clock jumps to the next timer;
when several things are ready, a seeded shuffle decides which goes first. The same seed gives the same run.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any


class WaitsForEver(AssertionError):
    """Nothing is ready and no timer is set, yet the run is not over: something waits for ever."""


class StepsExceeded(AssertionError):
    """The run takes far more steps than it has work for: something spins."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """`asyncio` with virtual time and seeded ordering."""

    def __init__(self, seed: int, *, step_limit: int = 200_000) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self._selector = self
        self._now = 0.0
        self._steps = 0
        self._step_limit = step_limit
        self._failure: BaseException | None = None
        self.set_exception_handler(self._remember)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Stands in for the selector: waiting means that the clock jumps."""
        if timeout is None:
            raise WaitsForEver("nothing is ready and no timer is set")
        self._now += timeout
        return []

    def run(self, main: Awaitable[None]) -> None:
        """Run to the end and raise whatever went wrong, in the main task or beside it."""
        asyncio.set_event_loop(self)
        try:
            self.run_until_complete(main)
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self._discard_tasks()
            asyncio.set_event_loop(None)
            self.close()
        if self._failure is not None:
            raise self._failure

    def _run_once(self) -> None:
        self._steps += 1
        if self._steps > self._step_limit:
            raise StepsExceeded(f"more than {self._step_limit} steps at virtual second {self._now:.1f}")
        ready = list(self._ready)  # type: ignore[attr-defined]
        self.rng.shuffle(ready)
        self._ready.clear()  # type: ignore[attr-defined]
        self._ready.extend(ready)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, _events: list[Any]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads to wake us."""

    def _remember(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failure = self._failure or context.get("exception") or AssertionError(context["message"])

    def _discard_tasks(self) -> None:
        for task in asyncio.all_tasks(self):
            task.cancel()
            task._log_destroy_pending = False  # type: ignore[attr-defined]


def explore(scenario: Callable[[SimulatedLoop], Awaitable[None]], seeds: range, *, step_limit: int = 200_000) -> None:
    """Run `scenario` once for each seed; a failure names its seed and how to replay it."""
    for seed in seeds:
        loop = SimulatedLoop(seed, step_limit=step_limit)
        try:
            loop.run(scenario(loop))
        except BaseException as error:
            error.add_note(f"found with seed {seed}; replay it with: pytest tests/simulation --seed {seed}")
            raise
