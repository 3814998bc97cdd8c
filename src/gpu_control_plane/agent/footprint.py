"""Keeps out of memory what libraries take along when they are imported and an agent never uses.

Every node pays for its agent, in memory that its pods cannot have and in time until it registers after a reboot.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def import_sparingly() -> None:
    """Import the libraries that would take too much, before anybody else does.

    structlog loads Rich wherever it is installed, for tracebacks that nobody sees here. aiohttp reads the system's
    certificate authorities; connections to the API server have a context of their own, so none is missed.
    """
    with _without("rich"), _environment(SSL_CERT_FILE=os.devnull, SSL_CERT_DIR=os.devnull):
        import aiohttp  # noqa: F401, PLC0415
        import structlog  # noqa: F401, PLC0415


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
