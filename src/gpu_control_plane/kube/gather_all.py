"""Several writes at once, none of which is cancelled because another one failed."""

import asyncio
from collections.abc import Awaitable, Iterable


async def gather_all(work: Iterable[Awaitable[object]]) -> None:
    """Run everything to its end, then raise what failed. A task group would cancel the others half-way: their writes
    may have landed nevertheless, and what should have followed them would be lost."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        raise BaseExceptionGroup("some of several writes failed", failures)
