"""`python -m integration.kube.hostile PORT CONNECTIONS`: sends a webhook what it cannot want, until it is killed.

A connection that is closed comes back a second later, in the next of the ways there are to be a nuisance.
"""

import asyncio
import itertools
import ssl
import sys
from collections.abc import Awaitable, Callable

_HEAD = b"POST /validate-gpupool HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
_CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"

Nuisance = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def slow_head(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for letter in itertools.cycle(b"X-Never-Ending: x"):
        writer.write(bytes([letter]))
        await writer.drain()
        await asyncio.sleep(0.2)


async def slow_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_HEAD + b"Content-Length: 3000000\r\n\r\n" + b"x" * 60_000)
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.2)


async def large_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_HEAD + b"Content-Length: 3000000\r\n\r\n")
    for _ in range(45):
        writer.write(b"x" * 65536)
        await writer.drain()
    await reader.read()


async def endless_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(_CHUNK)
        await writer.drain()


NUISANCES: tuple[tuple[Nuisance, bool], ...] = (
    (silent, False),
    (silent, True),
    (slow_head, True),
    (slow_body, True),
    (large_body, True),
    (endless_body, True),
)


async def annoy(port: int, first: int) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    for number in itertools.count(first):
        nuisance, secure = NUISANCES[number % len(NUISANCES)]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting if secure else None)
            try:
                await nuisance(reader, writer)
            finally:
                writer.transport.abort()
        except OSError:
            pass
        await asyncio.sleep(1.0)


async def main(port: int, connections: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(annoy(port, number))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
