"""A little HTTP proxy on loopback that understands CONNECT and keeps a record of it."""

import asyncio
import base64
import contextlib
import ssl
from types import TracebackType
from typing import Self


class ConnectProxy:
    """Use inside `async with`. `tunnels` holds the `host:port` of every tunnel it opened, in order."""

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, credentials: str | None = None, refuse: bool = False
    ) -> None:
        self.tunnels: list[str] = []
        self._tls = tls
        self._credentials = credentials
        self._refuse = refuse
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        if method != "CONNECT" or self._refuse:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        elif self._credentials is not None and not _shows(head, self._credentials):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        else:
            host, _, port = target.rpartition(":")
            upstream_reader, upstream_writer = await asyncio.open_connection(host.strip("[]"), int(port))
            self.tunnels.append(target)
            self._open.add(upstream_writer)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                await asyncio.gather(_pump(reader, upstream_writer), _pump(upstream_reader, writer))
            finally:
                self._open.discard(upstream_writer)
                upstream_writer.close()
        await writer.drain()


def _shows(head: str, credentials: str) -> bool:
    return f"Proxy-Authorization: Basic {base64.b64encode(credentials.encode()).decode()}" in head


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
