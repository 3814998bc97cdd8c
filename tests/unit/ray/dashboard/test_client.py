"""Requests to dashboards: what Ray answers is understood, and what others answer does no harm."""

import asyncio
import gc
import ipaddress
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from gpu_control_plane.api.ray.job import JobStatus
from gpu_control_plane.kube.config import Access, Config
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.dashboard.calls import DashboardCalls
from gpu_control_plane.ray.dashboard.client import Dashboard
from gpu_control_plane.ray.dashboard.errors import BadAnswer, CannotAsk, DashboardError, NoAnswer, NotLetIn, Refused
from gpu_control_plane.ray.dashboard.exchange import Deadlines, Exchange, Target, is_reachable
from gpu_control_plane.ray.dashboard.models import JobSubmission
from ray_dashboard import FakeDashboard, Fault

SUBMISSION = JobSubmission(entrypoint="python job.py", submission_id="demo-x1")
KEY = Key("demo", "team")
QUICK = Deadlines(connect=0.2, read=0.2, read_through_api_server=0.2, write=0.2)


def _exchange(**given: object) -> Exchange:
    return Exchange(environ={}, allowed=lambda _address: True, **given)  # type: ignore[arg-type]


@asynccontextmanager
async def _served(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server of HTTP that is no Ray; its address."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with FakeDashboard() as fake:
        yield fake


@pytest.fixture
async def dashboard() -> AsyncIterator[Dashboard]:
    async with Dashboard(_exchange()) as dashboard:
        yield dashboard


@pytest.fixture
async def patient() -> AsyncIterator[Dashboard]:
    """To read megabytes may take a while on a busy machine."""
    async with Dashboard(_exchange(deadlines=Deadlines(read=20))) as dashboard:
        yield dashboard


@pytest.fixture
async def impatient() -> AsyncIterator[Dashboard]:
    async with Dashboard(_exchange(deadlines=QUICK)) as dashboard:
        yield dashboard


async def test_a_job_that_ray_does_not_know_is_none(fake: FakeDashboard, dashboard: Dashboard) -> None:
    assert await dashboard.job(Target(url=fake.url), "nobody") is None


async def test_a_job_is_submitted_and_looked_up(fake: FakeDashboard, dashboard: Dashboard) -> None:
    target = Target(url=fake.url)
    assert await dashboard.submit(target, SUBMISSION) == "demo-x1"
    assert fake.submissions[0].body == {"entrypoint": "python job.py", "submission_id": "demo-x1"}
    held = await dashboard.job(target, "demo-x1")
    assert held is not None
    assert held.status is JobStatus.PENDING
    assert held.start_time is None


async def test_times_and_reasons_of_a_job_are_read(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.submit("demo-x1")
    fake.set("demo-x1", "FAILED", driver_exit_code=3, error_type="JOB_ENTRYPOINT_COMMAND_ERROR", message="exit 3")
    held = await dashboard.job(Target(url=fake.url), "demo-x1")
    assert held is not None
    assert (held.status, held.driver_exit_code, held.message) == (JobStatus.FAILED, 3, "exit 3")
    assert held.end_time == datetime.fromtimestamp(1_800_000_000, UTC)


async def test_a_job_is_submitted_once_however_often_it_is_asked_for(fake: FakeDashboard, dashboard: Dashboard) -> None:
    for _ in range(3):
        assert await dashboard.submit(Target(url=fake.url), SUBMISSION) == "demo-x1"
    assert len(fake.submissions) == 1


async def test_a_submission_whose_answer_is_lost_is_found_again(fake: FakeDashboard, dashboard: Dashboard) -> None:
    async with fake.failing(Fault.LOSE_ANSWER):
        with pytest.raises(NoAnswer):
            await dashboard.submit(Target(url=fake.url), SUBMISSION)
    assert await dashboard.submit(Target(url=fake.url), SUBMISSION) == "demo-x1"
    assert len(fake.submissions) == 1


async def test_what_ray_refuses_for_good_is_permanent(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.jobs.clear()
    with pytest.raises(Refused) as raised:
        await dashboard.put_serve(Target(url=fake.url), {"applications": "none"})
    assert raised.value.permanent
    assert "400: 1 validation error for ServeDeploySchema" in str(raised.value)


async def test_a_job_is_told_to_stop(fake: FakeDashboard, dashboard: Dashboard) -> None:
    target = Target(url=fake.url)
    fake.submit("demo-x1")
    assert await dashboard.stop(target, "demo-x1")
    assert not await dashboard.stop(target, "demo-x1")
    assert not await dashboard.stop(target, "nobody")
    assert fake.stopped == ["demo-x1"]


async def test_serve_is_configured_and_looked_at(fake: FakeDashboard, dashboard: Dashboard) -> None:
    target = Target(url=fake.url)
    assert (await dashboard.serve(target)).applications == {}
    config = {"applications": [{"name": "a", "deployments": [{"name": "D"}]}], "target_capacity": 20}
    await dashboard.put_serve(target, config)
    details = await dashboard.serve(target)
    assert details.applications["a"].running
    assert details.applications["a"].deployments["D"].status == "HEALTHY"
    assert details.target_capacity == 20
    assert fake.serve_configs == [config]


async def test_a_proxy_of_serve_serves_when_it_says_so(fake: FakeDashboard, impatient: Dashboard) -> None:
    target = Target(url=fake.url)
    assert not await impatient.head_serves(target)
    fake.serves = True
    assert await impatient.head_serves(target)
    async with fake.failing(Fault.REFUSE):
        assert not await impatient.head_serves(target)


async def test_a_cluster_has_work_while_one_component_has(fake: FakeDashboard, dashboard: Dashboard) -> None:
    target = Target(url=fake.url)
    assert not (await dashboard.activity(target)).active
    fake.components["driver"] = {"is_active": "ACTIVE", "reason": "1 driver", "last_activity_at": 1_800_000_000.5}
    busy = await dashboard.activity(target)
    assert (busy.active, busy.reason) == (True, "1 driver")
    assert busy.last_activity == datetime.fromtimestamp(1_800_000_000, UTC)


@pytest.mark.parametrize("of_a_driver", [False, True])
async def test_a_cluster_that_serves_has_work(fake: FakeDashboard, dashboard: Dashboard, of_a_driver: bool) -> None:
    target = Target(url=fake.url)
    if of_a_driver:
        fake.imperative = ["shop"]
    else:
        await dashboard.put_serve(target, {"applications": [{"name": "shop", "import_path": "shop:app"}]})
    serving = await dashboard.activity(target)
    assert (serving.active, serving.reason) == (True, "Ray Serve has 1 application")


async def test_without_ray_serve_a_cluster_serves_nothing(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.has_serve = False
    assert not (await dashboard.activity(Target(url=fake.url))).active


@pytest.mark.parametrize("state", ["ALIVE", "RESTARTING", "PENDING_CREATION"])
async def test_a_cluster_with_an_actor_has_work(fake: FakeDashboard, dashboard: Dashboard, state: str) -> None:
    fake.actors[state] = ["serve", "research"]
    held = await dashboard.activity(Target(url=fake.url))
    assert (held.active, held.reason) == (True, f"there are actors in state {state}")


async def test_actors_of_rays_own_libraries_are_no_work(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.actors["ALIVE"] = ["serve", "_dataset_stats_actor", "_train_state_actor", "AutoscalingCoordinator"]
    assert not (await dashboard.activity(Target(url=fake.url))).active
    fake.actors["ALIVE"] = ["serve"] * 100  # and maybe others
    assert (await dashboard.activity(Target(url=fake.url))).active


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Fault.HANG, NoAnswer, "did not answer in time"),
        (Fault.REFUSE, NoAnswer, "cannot connect"),
        (Fault.ERROR, Refused, "500: RuntimeError: the GCS is away"),
        (Fault.REDIRECT, BadAnswer, "redirects"),
        (Fault.HUGE, BadAnswer, "more than"),
        (Fault.NONSENSE, BadAnswer, "not Ray's dashboard"),
    ],
)
async def test_faults_become_sentences(
    fake: FakeDashboard, fault: Fault, error: type[DashboardError], said: str
) -> None:
    # What hangs is to be given up soon; to read megabytes may take a while on a busy machine.
    deadlines = QUICK if fault is Fault.HANG else Deadlines(read=20)
    fake.submit("demo-x1")
    async with Dashboard(_exchange(deadlines=deadlines)) as dashboard, fake.failing(fault):
        with pytest.raises(error, match=said) as raised:
            await dashboard.job(Target(url=fake.url), "demo-x1")
    assert not raised.value.permanent


async def test_a_slow_dashboard_is_given_up_although_it_sends_bytes(dashboard: Dashboard) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    async with _served(trickle) as url, Dashboard(_exchange(deadlines=QUICK)) as impatient:
        with pytest.raises(NoAnswer, match="in time"):
            await impatient.job(Target(url=url), "demo-x1")


async def test_a_404_of_something_else_is_not_the_absence_of_a_job(dashboard: Dashboard) -> None:
    async def nothing(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    async with _served(nothing) as url:
        with pytest.raises(Refused, match="not Ray's job server"):
            await dashboard.job(Target(url=url), "demo-x1")


async def test_the_token_is_shown_and_needed(dashboard: Dashboard) -> None:
    async with FakeDashboard(token="secret") as fake:
        with pytest.raises(NotLetIn):
            await dashboard.submit(Target(url=fake.url), SUBMISSION)
        await dashboard.submit(Target(url=fake.url, token="secret"), SUBMISSION)
        assert len(fake.submissions) == 1


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "../../x", "a\nb"])
async def test_an_id_never_leads_elsewhere(dashboard: Dashboard, fake: FakeDashboard, job_id: str) -> None:
    with pytest.raises(CannotAsk):
        await dashboard.job(Target(url=fake.url), job_id)
    assert fake.requests == []


async def test_an_id_may_hold_what_has_a_meaning_in_urls(dashboard: Dashboard, fake: FakeDashboard) -> None:
    fake.submit("a?b=c#d e%2F")
    assert await dashboard.job(Target(url=fake.url), "a?b=c#d e%2F") is not None


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("10.0.0.7", True),
        ("192.168.1.4", True),
        ("100.64.0.3", True),
        ("2001:db8::1", True),
        ("fd00::5", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("169.254.169.254", False),
        ("fe80::1", False),
        ("0.0.0.0", False),  # noqa: S104
        ("224.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:a9fe:a9fe::", False),
        ("fd00:ec2::254", False),
        ("100.100.100.200", False),
        ("168.63.129.16", False),
        ("64:ff9b::a00:7", True),
    ],
)
def test_only_addresses_of_pods_are_called(address: str, reachable: bool) -> None:
    assert is_reachable(ipaddress.ip_address(address)) is reachable


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
async def test_nothing_on_the_node_is_called(fake: FakeDashboard, host: str) -> None:
    url = fake.url.replace("127.0.0.1", host)
    async with Dashboard(Exchange(environ={})) as dashboard:
        with pytest.raises((CannotAsk, NoAnswer), match="address that a pod"):
            await dashboard.job(Target(url=url), "demo-x1")
    assert fake.requests == []


async def test_the_environments_proxy_is_used_except_where_it_says_otherwise() -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(str(request.url))
        return web.Response(status=404, text="Job demo-x1 does not exist")

    async with _served(proxy) as url:
        target = Target(url="http://demo-head-svc.team.svc.cluster.local:8265")
        async with Dashboard(Exchange(environ={"HTTP_PROXY": url})) as dashboard:
            assert await dashboard.job(target, "demo-x1") is None
        environ = {"HTTP_PROXY": url, "NO_PROXY": ".svc.cluster.local"}
        async with Dashboard(Exchange(environ=environ, deadlines=Deadlines(read=20))) as dashboard:
            with pytest.raises(NoAnswer):
                await dashboard.job(target, "demo-x1")
    assert seen == ["http://demo-head-svc.team.svc.cluster.local:8265/api/jobs/demo-x1"]


async def test_a_proxy_may_be_on_this_node() -> None:
    async def proxy(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="Job demo-x1 does not exist")

    async with _served(proxy) as url:
        environ = {"HTTP_PROXY": url.removeprefix("http://").replace("127.0.0.1", "localhost")}
        async with Dashboard(Exchange(environ=environ, deadlines=Deadlines(read=20))) as dashboard:
            assert await dashboard.job(Target(url="http://demo-head-svc.team.svc:8265"), "demo-x1") is None


async def test_what_is_kept_of_an_answer_has_a_bound(dashboard: Dashboard) -> None:
    """Answers of all dashboards are kept for as long as their jobs are followed."""

    async def talkative(_request: web.Request) -> web.Response:
        text = "x" * 100_000
        return web.json_response({"status": text, "message": text, "entrypoint": text, "error_type": text})

    async with _served(talkative) as url:
        held = await dashboard.job(Target(url=url), "demo-x1")
    assert len(msgspec.json.encode(held)) < 3000


_LARGE: Final = {
    "a configuration of many objects": {"a": {"status": "RUNNING", "deployed_app_config": {"x": [{}] * 340_000}}},
    "many replicas": {"a": {"status": "RUNNING", "deployments": {"D": {"replicas": [{}] * 340_000}}}},
    "many applications": {f"{number:x}": {} for number in range(4900)},
    "long texts": {f"{number:x}": {"status": "x" * 9999, "message": "é" * 9999} for number in range(9)},
}


@pytest.mark.parametrize("applications", _LARGE.values(), ids=_LARGE.keys())
async def test_what_is_kept_of_ray_serve_takes_little_more_memory_than_it_has_bytes(
    patient: Dashboard, applications: Any
) -> None:
    """Read as objects, the first of these would be thirty times as large."""
    body = msgspec.json.encode({"applications": applications})

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    async with _served(large) as url:
        await patient.serve(Target(url=url))  # what is made once is there
        tracemalloc.start()
        try:
            kept = [await patient.serve(Target(url=url)) for _ in range(3)]
            gc.collect()
            taken, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert taken < 3 * (2 << 20)
    assert most < 64 << 20
    assert taken < 2 * sum(each.size for each in kept) + (256 << 10), "it takes more than it says"


@pytest.mark.parametrize(
    ("applications", "said"),
    [
        ({"a": {"deployed_app_config": {"x": "y" * (1 << 20)}}}, "with more than 1024 KiB; that is not read"),
        ({f"{number:x}": {} for number in range(5001)}, "more than 5000 applications and deployments"),
        ({"a": {"deployments": {f"{number:x}": {} for number in range(5000)}}}, "more than 5000 applications"),
    ],
)
async def test_too_much_of_ray_serve_is_not_read_and_said(patient: Dashboard, applications: Any, said: str) -> None:
    async def large(_request: web.Request) -> web.Response:
        return web.json_response({"applications": applications})

    async with _served(large) as url:
        with pytest.raises(BadAnswer, match=said):
            await patient.serve(Target(url=url))


async def test_a_configuration_of_thousands_of_lines_with_hundreds_of_replicas_is_read(patient: Dashboard) -> None:
    config = {"name": "a", "deployments": [{"name": "D", "user_config": {"text": "x" * 110_000}}]}
    replica = {"state": "RUNNING", "replica_id": "x" * 600}
    deployment = {"status": "HEALTHY", "deployment_config": config["deployments"], "replicas": [replica] * 1000}
    application = {"status": "RUNNING", "deployed_app_config": config, "deployments": {"D": deployment}}

    async def large(_request: web.Request) -> web.Response:
        return web.json_response({"applications": {"a": application}, "http_options": {"port": 8000}})

    async with _served(large) as url:
        details = await patient.serve(Target(url=url))
    held = details.applications["a"]
    assert held.deployed_app_config is not None
    assert msgspec.json.decode(held.deployed_app_config) == config
    assert held.deployments["D"].answers


async def test_an_error_keeps_nothing_of_what_was_read(fake: FakeDashboard, dashboard: Dashboard) -> None:
    """Errors are kept like answers, and a traceback has all that was at hand when it was raised."""
    calls, answered = DashboardCalls(), asyncio.Event()
    calls.signal.on_change(lambda _old, _new: answered.set())
    running = asyncio.create_task(calls.run())
    async with fake.failing(Fault.NONSENSE):
        calls.ask(KEY, "serve", lambda: dashboard.serve(Target(url=fake.url)))
        await answered.wait()
    running.cancel()
    answer = calls.latest(KEY, "serve")
    assert answer is not None
    error = answer.error
    assert isinstance(error, BadAnswer)
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)


async def test_cookies_of_one_dashboard_are_not_shown_to_it_again(dashboard: Dashboard) -> None:
    cookies: list[str | None] = []

    async def cookie(request: web.Request) -> web.Response:
        cookies.append(request.headers.get("Cookie"))
        return web.json_response({"status": "RUNNING"}, headers={"Set-Cookie": "a=b"})

    async with _served(cookie) as url:
        for _ in range(2):
            await dashboard.job(Target(url=url), "demo-x1")
    assert cookies == [None, None]


class Server(Config):
    """An API server whose credentials need no files."""

    def __init__(self, url: str) -> None:
        super().__init__(url, None)  # type: ignore[arg-type]

    async def access(self) -> Access:
        return Access(CIMultiDictProxy(CIMultiDict(Authorization="Bearer ours")), ssl=True)


async def test_through_the_api_server_it_is_shown_our_credentials_and_ray_the_token() -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    async def api_server(request: web.Request) -> web.Response:
        headers = request.headers
        seen.append((request.raw_path, headers.get("Authorization"), headers.get("x-ray-authorization")))
        return web.json_response({"status": "RUNNING"})

    path = "/api/v1/namespaces/ns/services/rc-head-svc:dashboard/proxy"
    async with _served(api_server) as url, Dashboard(_exchange(api_server=Server(url))) as dashboard:
        await dashboard.job(Target(url=path, token="rays"), "demo-x1")
    assert seen == [(f"{path}/api/jobs/demo-x1", "Bearer ours", "Bearer rays")]


async def test_our_credentials_are_shown_to_no_dashboard() -> None:
    seen: list[str | None] = []

    async def ray(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"status": "RUNNING"})

    async with _served(ray) as url, Dashboard(_exchange(api_server=Server(url))) as dashboard:
        await dashboard.job(Target(url=url), "demo-x1")
    assert seen == [None]


async def test_what_the_api_server_says_itself_is_no_answer_of_ray() -> None:
    async def api_server(_request: web.Request) -> web.Response:
        status = {"kind": "Status", "code": 404, "message": 'services "demo-x1" does not exist'}
        return web.json_response(status, status=404)

    path = "/api/v1/namespaces/ns/services/rc-head-svc:dashboard/proxy"
    async with _served(api_server) as url, Dashboard(_exchange(api_server=Server(url))) as dashboard:
        with pytest.raises(NoAnswer, match="the API server does not reach"):
            await dashboard.job(Target(url=path), "demo-x1")
