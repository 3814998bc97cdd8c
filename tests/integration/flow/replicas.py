"""Several replicas of the controller behind one address for their webhooks, as a Service has it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_control_plane.local.ports import LOOPBACK, free_port
from integration.flow.env import FlowEnv, webhook_options


class Replicas:
    """Replicas that a test kills and starts again."""

    def __init__(self, env: FlowEnv, count: int, port: int, targets: list[int]) -> None:
        self.port = port
        self.killed = 0
        self._env = env
        self._targets = targets
        self._processes: list[asyncio.subprocess.Process | None] = [None] * count

    def __len__(self) -> int:
        return len(self._processes)

    @property
    def dead(self) -> bool:
        """Whether one of them does not run."""
        return None in self._processes

    async def start_all(self) -> None:
        """Start those that do not run."""
        for number, process in enumerate(self._processes):
            if process is None:
                options = webhook_options(self._targets[number])
                self._processes[number] = await self._env.start_replica(f"replica-{number}", *options)

    async def kill(self, number: int) -> None:
        """Without any warning."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            self.killed += 1
            process.kill()
            await process.wait()

    async def kill_all(self) -> None:
        for number in range(len(self)):
            await self.kill(number)


@asynccontextmanager
async def replicas_of(env: FlowEnv, count: int) -> AsyncIterator[Replicas]:
    """So many replicas, running. The API server has to be told their port."""
    targets = [free_port() for _ in range(count)]
    async with balanced(*targets) as port:
        made = Replicas(env, count, port, targets)
        try:
            await made.start_all()
            yield made
        finally:
            await made.kill_all()


@asynccontextmanager
async def balanced(*ports: int) -> AsyncIterator[int]:
    """A port whose connections go to these in turn."""
    count = 0

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # a side that is gone; the other one learns of it by the end of its connection
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            inward, outward = await asyncio.open_connection(LOOPBACK, ports[count % len(ports)])
        except OSError:
            writer.close()
            return
        await asyncio.gather(pipe(reader, outward), pipe(inward, writer))

    server = await asyncio.start_server(connect, LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
