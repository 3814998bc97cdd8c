"""Short synchronous requests to the cluster's own servers: readiness, and the few objects the cluster sets up itself.

Controllers use `gpu_control_plane.kube`; this is only what has to work before anything else does.
"""

import http.client
import ssl
from pathlib import Path

import msgspec

from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.ports import LOOPBACK

_TIMEOUT = 5.0


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004


class Access:
    """Talks to servers on this machine, as one client certificate and trusting one authority."""

    def __init__(self, authority: Path, client: KeyPair) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(str(client.certificate), str(client.key))

    def request(
        self, port: int, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Answer:
        """Send a request; raises OSError or `http.client.HTTPException` when there is no whole answer."""
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=_TIMEOUT, context=self._context)
        return _ask(connection, method, path, body, content_type)

    def healthy(self, port: int, path: str, *, secure: bool = True, host: str = LOOPBACK) -> bool:
        """Whether the server behind a port says it is well. No answer is no."""
        try:
            if secure:
                return self.request(port, "GET", path).ok
            return _ask(http.client.HTTPConnection(host, port, timeout=_TIMEOUT), "GET", path).ok
        except (OSError, http.client.HTTPException):
            return False


def _ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    content_type: str = "application/json",
) -> Answer:
    try:
        headers = {} if body is None else {"Content-Type": content_type}
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()
