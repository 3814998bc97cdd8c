"""A dashboard of Ray for tests: a real HTTP server that answers as Ray 2.60 does, and misbehaves on command.

Jobs and applications of Ray Serve change when the test says so. What was submitted is recorded, so that a test can
count how often a job has run.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
from aiohttp import web

_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Fault(enum.Enum):
    """How the server misbehaves, if it does."""

    HANG = "takes requests and never answers"
    REFUSE = "takes no connections"
    ERROR = "answers 500 to everything"
    REDIRECT = "sends callers elsewhere"
    HUGE = "answers without end"
    NONSENSE = "answers with what is no JSON"
    LOSE_ANSWER = "does what it is asked for, and breaks the connection"


class Submission(msgspec.Struct, frozen=True):
    """One job that was submitted, and so has run."""

    submission_id: str
    body: dict[str, Any]


class FakeDashboard:
    """One head's dashboard. Use inside `async with`."""

    def __init__(
        self, *, token: str = "", host: str = "127.0.0.1", now: Callable[[], float] = lambda: 1_800_000_000.0
    ) -> None:
        self.host = host
        """Where it listens."""
        self.token = token
        """What callers have to show, if anything."""
        self.fault: Fault | None = None
        self.slow: float = 0.0
        """Seconds before it answers."""
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submissions: list[Submission] = []
        self.stopped: list[str] = []
        self.requests: list[str] = []
        """Method and path of every request, in order."""
        self.serve_configs: list[dict[str, Any]] = []
        self.applications: dict[str, dict[str, Any]] = {}
        self.target_capacity: float | None = None
        self.serves = False
        """What the proxy of Ray Serve answers at `/-/healthz`."""
        self.components: dict[str, dict[str, Any]] = {"driver": {"is_active": "INACTIVE", "reason": None}}
        self.actors: dict[str, list[str]] = {}
        """The namespaces of its actors, by state."""
        self.imperative: list[str] = []
        """Applications of Ray Serve that a driver has deployed, and no configuration."""
        self.has_serve = True
        self.asked = asyncio.Event()
        """Set when a request has come; for tests that wait for one."""
        self._now = now
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the port it had before if it had one."""
        app = web.Application(middlewares=[self._misbehave])
        app.router.add_get("/api/jobs/", self._list)
        app.router.add_post("/api/jobs/", self._submit)
        app.router.add_get("/api/jobs/{job}", self._job)
        app.router.add_delete("/api/jobs/{job}", self._delete)
        app.router.add_post("/api/jobs/{job}/stop", self._stop)
        app.router.add_get("/api/serve/applications/", self._serve)
        app.router.add_put("/api/serve/applications/", self._put_serve)
        app.router.add_get("/api/gcs_healthz", _success)
        app.router.add_get("/api/component_activities", self._activities)
        app.router.add_get("/api/v0/actors", self._actors)
        app.router.add_get("/-/healthz", self._healthz)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Take no more connections. What it knows stays."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def set(self, job_id: str, status: str, **fields: object) -> None:
        """Bring a job to a state, as its driver would."""
        job = self.jobs[job_id]
        job.update(status=status, **fields)
        if status != "PENDING" and job["start_time"] is None:
            job["start_time"] = int(self._now() * 1000)
        if status in _ENDED and job["end_time"] is None:
            job["end_time"] = int(self._now() * 1000)

    def submit(self, job_id: str, entrypoint: str = "python job.py", body: dict[str, Any] | None = None) -> None:
        """Submit a job as a submitter does, beside the operator."""
        assert job_id not in self.jobs, f"the job {job_id} is there already"
        self.submissions.append(Submission(job_id, body or {"entrypoint": entrypoint, "submission_id": job_id}))
        self.jobs[job_id] = {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": job_id,
            "driver_info": None,
            "status": "PENDING",
            "entrypoint": entrypoint,
            "message": "Job has not started yet.",
            "error_type": None,
            "start_time": None,
            "end_time": None,
            "metadata": {},
            "runtime_env": {},
            "driver_exit_code": None,
        }

    @asynccontextmanager
    async def failing(self, fault: Fault) -> AsyncIterator[None]:
        """Misbehave for as long as the block lasts."""
        if fault is Fault.REFUSE:
            await self.stop()
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None
            if fault is Fault.REFUSE:
                await self.start()

    @web.middleware
    async def _misbehave(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        self.asked.set()
        if self.slow:
            await asyncio.sleep(self.slow)
        if self.token and request.headers.get("x-ray-authorization") != f"Bearer {self.token}":
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        match self.fault:
            case Fault.HANG:
                await asyncio.Event().wait()
            case Fault.ERROR:
                return web.Response(
                    status=500, text="Traceback (most recent call last):\nRuntimeError: the GCS is away"
                )
            case Fault.REDIRECT:
                return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})
            case Fault.HUGE:
                return web.Response(body=b"x" * (32 << 20))
            case Fault.NONSENSE:
                return web.Response(text="<html>Welcome</html>")
            case Fault.LOSE_ANSWER:
                await handler(request)
                assert request.transport is not None
                request.transport.abort()
        response: web.StreamResponse = await handler(request)
        return response

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response(list(self.jobs.values()))

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        job_id = body.get("submission_id") or f"raysubmit_{len(self.jobs)}"
        if job_id in self.jobs:
            said = f"ValueError: Job with submission_id {job_id} already exists. Please use a different submission_id."
            return web.Response(status=500, text=f"Traceback (most recent call last):\n{said}")
        if not isinstance(body.get("entrypoint"), str):
            return web.Response(status=400, text="Traceback (most recent call last):\nTypeError: entrypoint")
        self.submit(job_id, body["entrypoint"], body)
        return web.json_response({"job_id": job_id, "submission_id": job_id})

    async def _job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["job"])
        if job is None:
            return web.Response(status=404, text=f"Job {request.match_info['job']} does not exist")
        return web.json_response(job)

    async def _delete(self, request: web.Request) -> web.Response:
        job = self.jobs.pop(request.match_info["job"], None)
        return web.json_response({"deleted": True}) if job is not None else web.Response(status=404, text="no job")

    async def _stop(self, request: web.Request) -> web.Response:
        job_id = request.match_info["job"]
        job = self.jobs.get(job_id)
        if job is None:
            return web.Response(status=404, text=f"Job {job_id} does not exist")
        if job["status"] in _ENDED:
            return web.json_response({"stopped": False})
        self.stopped.append(job_id)
        self.set(job_id, "STOPPED", message="Job was intentionally stopped.")
        return web.json_response({"stopped": True})

    async def _serve(self, request: web.Request) -> web.Response:
        if not self.has_serve:
            return web.Response(status=501, text="Serve dependencies are not installed.")
        beside = self.imperative if request.query.get("api_type") != "declarative" else []
        return web.json_response(
            {
                "controller_info": {"node_id": "a", "node_ip": "10.0.0.1"} if self.serve_configs else {},
                "proxy_location": "EveryNode",
                "http_options": {"host": "0.0.0.0", "port": 8000} if self.serve_configs else None,  # noqa: S104
                "proxies": {},
                "deploy_mode": "MULTI_APP",
                "applications": {**self.applications, **{name: {"name": name} for name in beside}},
                "target_capacity": self.target_capacity,
            }
        )

    async def _put_serve(self, request: web.Request) -> web.Response:
        config = await request.json()
        if not isinstance(config.get("applications"), list):
            return web.Response(status=400, text="1 validation error for ServeDeploySchema")
        self.serve_configs.append(config)
        self.target_capacity = config.get("target_capacity")
        self.applications = {one["name"]: self._application(one) for one in config["applications"]}
        return web.Response()

    def _application(self, config: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": config["name"],
            "route_prefix": config.get("route_prefix", "/"),
            "status": "RUNNING",
            "message": "",
            "deployed_app_config": config,
            "deployments": {
                one["name"]: {"name": one["name"], "status": "HEALTHY", "message": "", "replicas": []}
                for one in config.get("deployments", [])
            },
        }

    async def _activities(self, _request: web.Request) -> web.Response:
        return web.json_response(self.components)

    async def _actors(self, request: web.Request) -> web.Response:
        assert (request.query["filter_keys"], request.query["filter_predicates"]) == ("state", "=")
        held = self.actors.get(request.query["filter_values"], [])[: int(request.query["limit"])]
        found = [{"actor_id": "a", "state": "ALIVE", "ray_namespace": namespace} for namespace in held]
        listed = {"total": len(found), "num_after_truncation": len(found), "num_filtered": len(found), "result": found}
        return web.json_response({"result": True, "msg": "", "data": {"result": listed}})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="success") if self.serves else web.Response(status=503, text="no replicas")


async def _success(_request: web.Request) -> web.Response:
    return web.Response(text="success")
