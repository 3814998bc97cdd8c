"""How the watches of a process come back when the API server was away: one asks, and the others follow its answer.

An outage breaks every watch of every process at the same moment. If each tried again by itself, thousands of agents
would meet a server that has just started with all of their watches at once. So one watch of a process asks at a time,
after a pause with full jitter; once it is answered the others follow, spread over as long as the pauses had become.
A short interruption is over shortly, and after a long one the load of a large cluster is flat for two minutes.
"""

import asyncio
import random
from types import TracebackType
from typing import Final, Self

from gpu_control_plane.kube.backoff import Backoff

ONE_OF_FEW: Final = Backoff(first=0.1, most=5.0, jitter=1.0)
"""For the replicas of a controller: what waits for them is more than they ask for."""
ONE_OF_MANY: Final = Backoff(first=1.0, most=60.0, factor=4.0, jitter=1.0)
"""For processes that run on every node: 5,000 agents come back at less than 500 requests a second."""


class Recovery:
    """Shared by the watches of a process; each has a `Seat`."""

    def __init__(self, backoff: Backoff = ONE_OF_FEW, rng: random.Random | None = None) -> None:
        self.backoff = backoff
        self.rng = rng or random.Random()
        self.failures = 0
        """Attempts in a row that were not answered; those that fail at the same time, as an outage begins, are one."""
        self.spread = 0.0
        """Over how many seconds the others follow a watch that was answered."""
        self.asking = asyncio.Lock()

    def seat(self) -> "Seat":
        return Seat(self)


class Seat:
    """One watch's place. Leaving the block passes the turn on, whatever ended it."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._asks = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def answered(self) -> None:
        """The API server has answered this watch."""
        shared = self._recovery
        if shared.failures:
            shared.spread = shared.backoff.ceiling(shared.failures)
            shared.failures = 0
        self._pass_on()

    async def turn(self) -> None:
        """The API server did not answer. Returns when it is this watch's turn to try again."""
        shared = self._recovery
        if self._asks or not shared.failures:
            shared.failures += 1
        self._pass_on()
        await shared.asking.acquire()
        self._asks = True
        if shared.failures:
            await asyncio.sleep(shared.backoff.delay(shared.failures, shared.rng))
        else:  # another watch was answered in the meantime
            self._pass_on()
            await asyncio.sleep(shared.rng.uniform(0.0, shared.spread))

    def _pass_on(self) -> None:
        if self._asks:
            self._asks = False
            self._recovery.asking.release()
