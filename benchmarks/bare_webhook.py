"""A webhook that does nothing but answer, for comparison: what a call costs the API server whoever serves it.

The first review is answered by the production code; all others get the same patch, with their uid in its place. Run as
`python -m benchmarks.bare_webhook PORT CERTIFICATE KEY POOL`.
"""

import asyncio
import re
import ssl
import sys
from typing import Final

from gpu_control_plane.admission.pods import Offer, review_pod
from gpu_control_plane.api import GPUPool
from gpu_control_plane.api.gpupool import PoolSpec
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.admission import encode_review, parse_review
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.local.ports import LOOPBACK

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_UID: Final = re.compile(rb'"uid":"([^"]+)"')
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_PLACE: Final = b"00000000-0000-0000-0000-000000000000"


class BareWebhook(asyncio.Protocol):
    """One connection: requests come one after the other."""

    answer: bytes = b""

    def __init__(self, pool: GPUPool) -> None:
        self._pool = pool
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._received = b""
        uid = _UID.search(body)
        assert uid is not None
        content = (self.answer or self._first(body)).replace(_PLACE, uid[1])
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (len(content), content)
        )

    def _first(self, body: bytes) -> bytes:
        request = parse_review(body, Pod)
        assert request.object is not None
        asked = request.object.extended_resources
        response = review_pod(asked, {name: Offer(self._pool, 0) for name in asked}, request.document(), request.uid)
        content = encode_review(request, response)
        BareWebhook.answer = content.replace(request.uid.encode(), _PLACE)
        return BareWebhook.answer


async def serve(port: int, certificate: str, key: str, pool: str) -> None:
    """Answer until the process is ended."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    offered = GPUPool(metadata=ObjectMeta(name=pool), spec=PoolSpec())
    server = await asyncio.get_running_loop().create_server(
        lambda: BareWebhook(offered), LOOPBACK, port, ssl=tls, backlog=1024
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), *sys.argv[2:]))
