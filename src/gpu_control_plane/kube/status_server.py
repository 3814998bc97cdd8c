"""`/healthz`, `/readyz` and `/metrics` of a process, over plain HTTP for the kubelet and Prometheus."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# Not from aiohttp.web, which brings a command line and WebSockets along.
from aiohttp.web_app import Application
from aiohttp.web_request import Request
from aiohttp.web_response import Response
from aiohttp.web_runner import AppRunner, TCPSite
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from gpu_control_plane.kube.errors import ConfigError

_HEAD_START_SECONDS = 0.001
"""What a thread needs to be on its way: without that, the interpreter's lock would be kept from it for longer."""

Check = Callable[[], str | None]
"""Returns what is wrong, or None when all is well."""


class StatusServer:
    """Serves health checks and metrics. Checks are named, so that the answer says which one fails."""

    def __init__(self, registry: CollectorRegistry, *, host: str = "0.0.0.0", port: int = 8080) -> None:  # noqa: S104 - the kubelet and Prometheus call from outside the pod
        self._registry = registry
        self._host = host
        self._port = port
        self._alive: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._extra_metrics: list[Callable[[], Awaitable[bytes]]] = []

    @property
    def port(self) -> int:
        """The port really listened on, which differs from the one asked for when that was 0."""
        return self._port

    def alive(self, name: str, check: Check) -> None:
        """Add a check whose failure means that the process must be restarted."""
        self._alive[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check whose failure means that the process must not be sent requests."""
        self._ready[name] = check

    def add_metrics(self, text: Callable[[], Awaitable[bytes]]) -> None:
        """Add metrics that are not in the registry, as Prometheus text, to what `/metrics` answers."""
        self._extra_metrics.append(text)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = Application()
        app.router.add_get("/healthz", self._answerer(self._alive))
        app.router.add_get("/readyz", self._answerer(self._ready))
        app.router.add_get("/metrics", self._metrics)
        runner = AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = TCPSite(runner, self._host, self._port)
            try:
                await site.start()
            except OSError as error:
                raise ConfigError(
                    f"port {self._port} on {self._host} cannot be used ({error.strerror}); "
                    "stop what holds it or choose another port"
                ) from error
            self._port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    @staticmethod
    def _answerer(checks: dict[str, Check]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(_request: Request) -> Response:
            problems = [(name, check()) for name, check in checks.items()]
            lines = [f"[{'-' if problem else '+'}] {name}: {problem or 'ok'}\n" for name, problem in problems]
            failed = any(problem for _, problem in problems)
            return Response(text="".join(lines) or "ok\n", status=503 if failed else 200)

        return answer

    async def _metrics(self, request: Request) -> Response:
        # Text can only be appended to the plain format: OpenMetrics ends with an end marker.
        encode, content_type = choose_encoder("" if self._extra_metrics else request.headers.get("Accept", ""))
        extra = [asyncio.ensure_future(text()) for text in self._extra_metrics]
        if extra:  # They wait for hardware, in threads: once they do, the registry is written in that time.
            await asyncio.wait(extra, timeout=_HEAD_START_SECONDS)
        body = b"".join([encode(self._registry), *[await text for text in extra]])
        return Response(body=body, headers={"Content-Type": content_type})
