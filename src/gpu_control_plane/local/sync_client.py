"""Short synchronous requests to the components of the cluster: health checks, and the few objects it creates itself.

Controllers use `gpu_control_plane.kube`; this is for what runs before them, without an event loop.
"""

import http.client
import ssl
from pathlib import Path

import msgspec

from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.ports import LOOPBACK

_TIMEOUT_SECONDS = 5.0


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004


class SyncClient:
    """Requests to servers on this host, with one client certificate and one trusted authority."""

    def __init__(self, authority: Path, client: KeyPair) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(str(client.certificate), str(client.key))

    def request(
        self, port: int, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Response:
        """Send a request; raises OSError or `http.client.HTTPException` when there is no whole answer."""
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS, context=self._context)
        return _send(connection, method, path, body, content_type)

    def healthy(self, port: int, path: str, *, secure: bool = True, host: str = LOOPBACK) -> bool:
        """Whether the server at a port answers its health check with success."""
        try:
            if secure:
                return self.request(port, "GET", path).ok
            return _send(http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS), "GET", path).ok
        except (OSError, http.client.HTTPException):
            return False


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    content_type: str = "application/json",
) -> Response:
    try:
        headers = {} if body is None else {"Content-Type": content_type}
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        response = connection.getresponse()
        return Response(response.status, response.read())
    finally:
        connection.close()
