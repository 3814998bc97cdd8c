"""Many real clients after a real outage: the API server is killed, stays away, and meets all of their watches again."""

import asyncio
import contextlib
import math
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing

import pytest
import structlog

from gpu_control_plane.kube import Cache, Client, Selection, load_config
from gpu_control_plane.kube.recovery import ONE_OF_MANY, Recovery
from gpu_control_plane.kube.watch import ApiSource, Batch
from gpu_control_plane.local import Cluster
from integration.kinds import ConfigMap
from waiting import until

WATCHES = 5
OUTAGE_SECONDS = 20.0


class TimedSource(ApiSource[ConfigMap]):
    """Notes when the server was asked, of those requests that it answered."""

    def __init__(self, client: Client, selection: Selection, answers: list[float]) -> None:
        super().__init__(client, ConfigMap, selection)
        self._answers = answers

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[ConfigMap]]:
        asked, first = time.monotonic(), True
        async with aclosing(super().changes(since)) as batches:
            async for batch in batches:
                if first:
                    self._answers.append(asked)
                    first = False
                yield batch


@pytest.mark.timeout(900)
async def test_many_clients_come_back_spread_out(
    own_api_server: Callable[..., Cluster], pytestconfig: pytest.Config
) -> None:
    clients: int = pytestconfig.getoption("--clients")
    if not clients:
        pytest.skip("takes minutes: `make test-long` runs it")
    cluster = await asyncio.to_thread(own_api_server)
    answers: list[float] = []
    async with AsyncExitStack() as stack:
        stack.enter_context(structlog.testing.capture_logs())
        caches: list[Cache[ConfigMap]] = []
        for number in range(clients):
            recovery = Recovery(ONE_OF_MANY)
            client = await stack.enter_async_context(Client(load_config(cluster.kubeconfig), recovery=recovery))
            selections = [Selection("default", fields=f"metadata.name=a-{number}-{each}") for each in range(WATCHES)]
            caches += [
                Cache(ConfigMap, TimedSource(client, selection, answers), recovery=recovery) for selection in selections
            ]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        running = [group.create_task(cache.run()) for cache in caches]
        await until(lambda: len(answers) == len(caches), within=300)

        await asyncio.to_thread(cluster.stop_component, "kube-apiserver", signal.SIGKILL)
        answers.clear()
        await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself, not a wait for something
        await asyncio.to_thread(cluster.start_component, "kube-apiserver")
        back = time.monotonic()
        await until(lambda: all(cache.watch_error is None for cache in caches), within=120)
        by_second = Counter(math.floor(moment - back) for moment in answers)
        print(  # noqa: T201 - for docs/reliability.md
            f"{clients} clients, {len(caches)} watches: all back after {time.monotonic() - back:.0f} s, "
            f"at most {max(by_second.values())} in a second"
        )
        # As many clients as agents of a tenth of the largest cluster: a tenth of 500, and as much again by chance.
        assert max(by_second.values()) <= 0.2 * clients
        for task in running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
