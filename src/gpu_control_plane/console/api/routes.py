"""The API as routes of the console: they stand behind the same gate as the pages."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpu_control_plane.console.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from gpu_control_plane.console.api.openapi import openapi_document

_JSON = "application/json"


def api_routes() -> list[Route]:
    document = msgspec.json.encode(openapi_document())

    async def describe(_request: Request) -> Response:
        return Response(document, media_type=_JSON)

    return [
        Route(f"{PREFIX}/openapi.json", describe),
        *(Route(f"{PREFIX}{each.path}", _answering(each), methods=[each.method]) for each in ENDPOINTS),
    ]


def _answering(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        for right in endpoint.needs:
            await request.state.viewer.require(right(request))
        return Response(msgspec.json.encode(await endpoint.function(request)), media_type=_JSON)

    return answer
