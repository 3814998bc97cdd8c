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
"""For processes that run on every node: after 30 s without a server, 5,000 agents come back at less than 500 requests
a second."""


class Recovery:
    """Shared by the watches of a process; each has a `Seat`. The pauses grow with the time that the server has been
    away, from the first of `backoff` to its longest: what was short is over soon, whatever was drawn."""

    def __init__(self, backoff: Backoff = ONE_OF_FEW, rng: random.Random | None = None) -> None:
        self.backoff = backoff
        self._rng = rng or random.Random()
        self._away_since: float | None = None
        self._spread = 0.0
        self._asking = asyncio.Lock()

    def seat(self) -> "Seat":
        return Seat(self)

    def answered(self) -> None:
        """The API server has answered one of the watches."""
        self._away_since = None

    async def take_turn(self) -> bool:
        """Wait as long as a watch has to that was not answered. True: it asks for all, and gives the turn back when it
        knows more. False: another was answered, and this one follows."""
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
        await self._asking.acquire()
        if not self._away:
            self._asking.release()
            await asyncio.sleep(self._rng.uniform(0.0, self._spread))
            return False
        self._spread = self._longest_pause()
        try:
            await asyncio.sleep(self._rng.uniform(0.0, self._spread))
        except asyncio.CancelledError:
            self._asking.release()
            raise
        return True

    def give_turn_back(self) -> None:
        self._asking.release()

    @property
    def _away(self) -> bool:
        return self._away_since is not None

    def _longest_pause(self) -> float:
        assert self._away_since is not None  # noqa: S101 - the callers checked
        away = asyncio.get_running_loop().time() - self._away_since
        return min(self.backoff.most, max(self.backoff.first, self.backoff.factor * away))


class Seat:
    """One watch's place. Leaving the block gives its turn back, whatever ended it."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._asks = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._give_turn_back()

    def answered(self) -> None:
        """The API server has answered this watch."""
        self._recovery.answered()
        self._give_turn_back()

    async def turn(self) -> None:
        """The API server did not answer. Returns when it is this watch's turn to try again."""
        self._give_turn_back()
        self._asks = await self._recovery.take_turn()

    def _give_turn_back(self) -> None:
        if self._asks:
            self._asks = False
            self._recovery.give_turn_back()
