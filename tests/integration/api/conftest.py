"""The shared API server with our CRDs in it."""

import http.client
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.local import Cluster

Ask = Callable[..., dict[str, Any]]


def in_time[T](look: Callable[[], T], wanted: T, within: float = 60.0) -> T:
    """What is seen, as soon as that is what is wanted: discovery and OpenAPI show changes of a CRD a moment late."""
    deadline = time.monotonic() + within
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


@pytest.fixture(scope="session", autouse=True)
def installed(api_server: Cluster) -> list[str]:
    return install_crds(api_server.kubeconfig)


@pytest.fixture
def ask(api_server: Cluster) -> Ask:
    """A GET for documents that are no objects: discovery, tables, OpenAPI."""

    def get(path: str, accept: str = "application/json") -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(api_server.authority))
        context.load_cert_chain(str(api_server.admin.certificate), str(api_server.admin.key))
        host = urlsplit(api_server.server)
        connection = http.client.HTTPSConnection(host.hostname or "", host.port, timeout=60, context=context)
        try:
            connection.request("GET", path, headers={"Accept": accept})
            document: dict[str, Any] = msgspec.json.decode(connection.getresponse().read())
            return document
        finally:
            connection.close()

    return get
