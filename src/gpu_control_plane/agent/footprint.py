"""Keeps the agent small: what libraries take along and an agent never uses stays out of memory.

Every node pays for its agent, in memory that its pods cannot have and in time until it registers after a reboot.
docs/agent.md says what the agent takes.
"""

import mimetypes
import os
import sys
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from types import ModuleType
from typing import Final

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""
_TLS_BUFFER_BYTES: Final = 32 * 1024


def import_sparingly() -> None:
    """Import the libraries that would take too much, before any other module does.

    structlog loads Rich wherever it is installed, for tracebacks on a terminal. aiohttp reads the system's
    certificate authorities, and a list of file types for files that a web server may serve; connections to the API
    server have a context of their own, and no file is served, so neither is missed. The Prometheus client brings a web
    server of its own, and that HTML's two thousand named characters, which only reading HTML needs.
    """
    mimetypes.init(files=())
    with _empty("html.entities", html5={}):
        import html  # noqa: F401, PLC0415
    with _without("rich"), _environment(SSL_CERT_FILE=os.devnull, SSL_CERT_DIR=os.devnull):
        import aiohttp  # noqa: F401, PLC0415
        import structlog  # noqa: F401, PLC0415


def limit_buffers() -> None:
    """Take less memory for what is the same size however little is done. Called before there are threads.

    glibc gives every thread a heap of its own, so that they need not wait for each other; the agent's threads wait for
    hardware. asyncio has a buffer of 256 KiB for each TLS connection, and the agent has one for every kind it watches,
    on which a few KiB come at a time.
    """
    mallopt = getattr(CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has one heap for all threads anyway
        mallopt(_ARENA_MAX, 1)
    sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Who tries to import this finds that it is not installed."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment] # how Python says so
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def _empty(module: str, **contents: object) -> Iterator[None]:
    """Who imports this gets no more than these contents."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = stub = ModuleType(module)
    vars(stub).update(contents)
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
