"""The webhook server over real TLS sockets on loopback."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from client_certificates import client_certificate
from gpu_control_plane.kube.admission import (
    API_VERSION,
    AdmissionRequest,
    AdmissionResponse,
    Handler,
    allow,
    change,
    deny,
)
from gpu_control_plane.kube.certificates import KeyPair, issue, new_authority
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.kube.tls import ClientCertificate, Trust, client_context, load_certificate, server_context
from gpu_control_plane.kube.webhooks import WebhookMetrics, WebhookServer
from waiting import until

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
AUTHORITY = new_authority("webhooks", now=NOW, valid_for=DAY)
TRUSTING = client_context(Trust(authorities=AUTHORITY.certificate))


class Thing(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("example.org", "v1", "Thing", "things")


def serving(authority: KeyPair = AUTHORITY, clients: KeyPair | None = None) -> ssl.SSLContext:
    context = server_context(clients.certificate if clients else None)
    certificate(context, authority)
    return context


def certificate(context: ssl.SSLContext, authority: KeyPair) -> None:
    pair = issue(authority, ["127.0.0.1"], now=NOW, valid_for=DAY)
    load_certificate(context, pair.certificate, pair.key, "the test's certificate")


def review(name: str = "one", operation: str = "CREATE") -> bytes:
    request = {"uid": "u-1", "operation": operation, "name": name, "object": {"metadata": {"name": name}}}
    return json.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}).encode()


async def kind_handler(request: AdmissionRequest[Thing]) -> AdmissionResponse:
    """Each name stands for something a handler may do."""
    match request.name:
        case "forbidden":
            return deny("not this one; take another")
        case "changed":
            return change(request.document() | {"spec": {"size": 1}})
        case "buggy":
            raise ZeroDivisionError("oops")
        case "impatient":
            raise TimeoutError("a handler's own")
        case "slow":
            await asyncio.sleep(60)
    return allow(warnings=["hello"])


class Caller:
    """What the API server does."""

    def __init__(self, server: WebhookServer, session: aiohttp.ClientSession) -> None:
        self._url = f"https://127.0.0.1:{server.port}"
        self._session = session

    async def ask(
        self,
        body: bytes | None = None,
        *,
        path: str = "/things",
        query: str = "",
        content_type: str = "application/json",
        tls: ssl.SSLContext = TRUSTING,
    ) -> tuple[int, dict[str, object]]:
        headers = {"Content-Type": content_type}
        data = review() if body is None else body
        async with self._session.post(f"{self._url}{path}{query}", data=data, headers=headers, ssl=tls) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else {"text": text}

    async def connect(self, *, secure: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which nothing is sent."""
        port = int(self._url.rpartition(":")[2])
        return await asyncio.open_connection("127.0.0.1", port, ssl=TRUSTING if secure else None)

    async def response(self, name: str, path: str = "/things") -> dict[str, object]:
        status, body = await self.ask(review(name), path=path)
        assert status == 200
        response = body["response"]
        assert isinstance(response, dict)
        return response


@asynccontextmanager
async def running(
    *,
    tls: ssl.SSLContext | None = None,
    registry: CollectorRegistry | None = None,
    handler: Handler[Thing] = kind_handler,
    **options: float,
) -> AsyncIterator[Caller]:
    server = WebhookServer(
        tls or serving(),
        host="127.0.0.1",
        port=0,
        metrics=WebhookMetrics(registry),
        **options,  # type: ignore[arg-type]
    )
    server.validating("/things", Thing, handler)
    server.mutating("/things/mutate", Thing, handler)
    async with aiohttp.ClientSession() as session, server:
        yield Caller(server, session)


async def test_a_handler_allows_with_a_warning() -> None:
    async with running() as caller:
        assert await caller.response("fine") == {"uid": "u-1", "allowed": True, "warnings": ["hello"]}


async def test_a_handler_denies_with_a_reason() -> None:
    async with running() as caller:
        response = await caller.response("forbidden")
        assert response["allowed"] is False
        assert response["status"] == {
            "status": "Failure",
            "message": "not this one; take another",
            "reason": "Forbidden",
            "code": 403,
        }


async def test_a_mutating_handler_changes() -> None:
    async with running() as caller:
        assert (await caller.response("changed", "/things/mutate"))["patchType"] == "JSONPatch"


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("buggy", 500, "The webhook /things failed (ZeroDivisionError). Its log says why."),
        ("impatient", 500, "The webhook /things failed (TimeoutError). Its log says why."),
        ("changed", 500, "The webhook /things failed (TypeError). Its log says why."),
        ("slow", 504, "The webhook /things did not decide within 0.3 s. Try again, and look at its log."),
    ],
)
async def test_a_broken_handler_is_an_error_not_a_response(name: str, code: int, sentence: str) -> None:
    """So that the failurePolicy decides, and a bug with policy Ignore refuses nothing."""
    async with running(time_limit=0.3) as caller:
        status, body = await caller.ask(review(name))
        assert (status, body["message"], body["kind"], body["code"]) == (code, sentence, "Status", code)


async def test_the_answer_comes_before_the_caller_gives_up() -> None:
    async with running() as caller:
        status, body = await caller.ask(review("slow"), query="?timeout=500ms")
        assert (status, body["message"]) == (
            504,
            "The webhook /things did not decide within 0.45 s. Try again, and look at its log.",
        )


@pytest.mark.parametrize(
    ("body", "content_type", "path", "code"),
    [
        (b"nonsense", "application/json", "/things", 400),
        (b"{}", "application/json", "/things", 400),
        (review(), "text/plain", "/things", 415),
        (review("x" * 100_000), "application/json", "/things", 413),
        (review(), "application/json", "/elsewhere", 404),
    ],
)
async def test_what_is_no_review_is_refused(body: bytes, content_type: str, path: str, code: int) -> None:
    async with running(largest_body=50_000) as caller:
        status, _ = await caller.ask(body, content_type=content_type, path=path)
        assert status == code
        assert (await caller.response("fine"))["allowed"] is True


async def test_a_body_that_never_ends_is_given_up() -> None:
    async def dripping() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async with running(time_limit=0.3, read_on=0.05) as caller:
        status, _ = await caller.ask(dripping())  # type: ignore[arg-type]
        assert status == 504


async def test_everything_is_counted() -> None:
    registry = CollectorRegistry()
    async with running(registry=registry) as caller:
        await caller.response("fine")
        await caller.response("forbidden")
        await caller.ask(review("buggy"))
        await caller.ask(b"nonsense")

    def counted(operation: str, allowed: str, code: str) -> float | None:
        labels = {"path": "/things", "operation": operation, "allowed": allowed, "code": code}
        return registry.get_sample_value("kube_webhook_requests_total", labels)

    assert counted("CREATE", "true", "200") == 1
    assert counted("CREATE", "false", "403") == 1
    assert counted("CREATE", "", "500") == 1
    assert counted("", "", "400") == 1
    labels = {"path": "/things", "operation": "CREATE"}
    assert registry.get_sample_value("kube_webhook_seconds_count", labels) == 3
    assert registry.get_sample_value("kube_webhook_in_flight", {"path": "/things"}) == 0


async def test_new_connections_get_a_new_certificate_at_once() -> None:
    other = new_authority("successor", now=NOW, valid_for=DAY)
    tls = serving()
    async with running(tls=tls, keep_connections=False) as caller:
        assert (await caller.ask())[0] == 200
        certificate(tls, other)
        assert (await caller.ask(tls=client_context(Trust(authorities=other.certificate))))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await caller.ask()


async def test_open_connections_survive_a_new_certificate() -> None:
    tls = serving()
    async with running(tls=tls) as caller:
        assert (await caller.ask())[0] == 200
        certificate(tls, new_authority("successor", now=NOW, valid_for=DAY))
        assert (await caller.ask())[0] == 200


async def test_callers_can_be_made_to_show_a_certificate() -> None:
    api_server = client_certificate(AUTHORITY, "kube-apiserver")
    shown = ClientCertificate(certificate=api_server.certificate, key=api_server.key, origin="the test's certificate")
    knowing = client_context(Trust(authorities=AUTHORITY.certificate), shown)
    async with running(tls=serving(clients=AUTHORITY)) as caller:
        assert (await caller.ask(tls=knowing))[0] == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await caller.ask()


class Gate:
    """A handler that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0

    async def __call__(self, _request: AdmissionRequest[Thing]) -> AdmissionResponse:
        self.waiting += 1
        await self.open.wait()
        return allow()


async def test_reviews_in_flight_are_answered_on_the_way_out() -> None:
    gate = Gate()
    async with asyncio.TaskGroup() as group:
        async with running(handler=gate) as caller:
            asking = [group.create_task(caller.ask()) for _ in range(5)]
            await until(lambda: gate.waiting == 5)
            asyncio.get_running_loop().call_later(0.2, gate.open.set)
        assert [status for status, _ in [await task for task in asking]] == [200] * 5


async def test_a_closing_server_still_answers_while_it_lingers() -> None:
    server = WebhookServer(serving(), host="127.0.0.1", port=0, linger=0.5)
    server.validating("/things", Thing, kind_handler)
    async with aiohttp.ClientSession() as session:
        async with asyncio.TaskGroup() as group:
            await server.__aenter__()
            caller = Caller(server, session)
            group.create_task(server.__aexit__(None, None, None))
            await asyncio.sleep(0)
            for _ in range(3):
                assert (await caller.ask())[0] == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await caller.ask()


async def test_a_connection_that_sends_no_review_is_closed() -> None:
    registry = CollectorRegistry()
    async with running(registry=registry, first_review_within=0.2) as caller:
        reader, writer = await caller.connect()
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert (await caller.response("fine"))["allowed"] is True
    assert registry.get_sample_value("kube_webhook_connections_closed_total", {"reason": "slow"}) == 1


async def test_a_connection_that_is_kept_for_a_later_review_stays() -> None:
    """The API server connects anew for a review that another connection may take, and uses the new one for the next."""
    async with running(handshake_within=0.2) as caller:
        reader, writer = await caller.connect()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.6)
        writer.close()


async def test_a_connection_without_a_handshake_is_closed() -> None:
    registry = CollectorRegistry()
    async with running(registry=registry, handshake_within=0.2) as caller:
        reader, writer = await caller.connect(secure=False)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert (await caller.response("fine"))["allowed"] is True
    assert registry.get_sample_value("kube_webhook_connections_closed_total", {"reason": "slow"}) == 1


async def test_newcomers_take_the_places_of_those_who_sent_no_review() -> None:
    registry = CollectorRegistry()
    async with running(registry=registry, connections=3) as caller:
        assert (await caller.response("fine"))["allowed"] is True
        held = [await caller.connect() for _ in range(5)]
        closed = [asyncio.create_task(reader.read()) for reader, _ in held]
        await until(lambda: sum(task.done() for task in closed) == 3)
        assert [task.done() for task in closed] == [True, True, True, False, False]
        # The caller's own connection was never in question.
        assert (await caller.response("fine"))["allowed"] is True
        for task in closed:
            task.cancel()
        for _, writer in held:
            writer.transport.abort()
    assert registry.get_sample_value("kube_webhook_connections_closed_total", {"reason": "limit"}) == 3


async def test_a_large_review_waits_for_others() -> None:
    async def unfinished() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        await asyncio.sleep(60)

    async with running(body_limit=0.5, read_on=0.05) as caller, asyncio.TaskGroup() as group:
        holding = [group.create_task(caller.ask(unfinished())) for _ in range(2)]  # type: ignore[arg-type]
        small = await caller.ask()
        large = await caller.ask(review("x" * 100_000))
        assert (small[0], large[0]) == (200, 200)
        assert [(await task)[0] for task in holding] == [408, 408]
