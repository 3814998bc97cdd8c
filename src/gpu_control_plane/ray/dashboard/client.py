"""What is asked of Ray's dashboards: about jobs, Ray Serve, and whether a cluster has work."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec

from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.ray.dashboard.errors import BadAnswer, CannotAsk, DashboardError, NoAnswer, NotLetIn, Refused
from gpu_control_plane.ray.dashboard.exchange import Ask, Deadlines, Exchange, Reply, Target
from gpu_control_plane.ray.dashboard.models import (
    Activity,
    ComponentOnWire,
    JobDetails,
    JobOnWire,
    JobSubmission,
    ServeDetails,
    ServeOnWire,
    StoppedOnWire,
    SubmittedOnWire,
    moment,
)
from gpu_control_plane.rules.ray.texts import is_job_id

__all__ = ["Dashboard", "Deadlines", "Exchange", "Target"]

_SAID_LIMIT: Final = 300
_SERVE_LIMIT: Final = 1 << 20
"""Bytes of what Ray Serve says. It says its configuration, of which a RayService holds 128 KiB, once as a whole and
once by deployments, and beside it some 700 bytes of each replica."""
_PARTS_LIMIT: Final = 5000
"""How many applications and deployments are read."""
_NO_LIKE: Final = 404
_NOT_LET_IN: Final = (401, 403)
_NOT_INSTALLED: Final = 501
_REDIRECTS: Final = range(300, 400)
_LIVING: Final = ("ALIVE", "RESTARTING", "PENDING_CREATION")
"""States by which Ray's GCS selects actors itself: it keeps up to 100,000 dead ones."""
_ACTORS: Final = 100
"""Actors in one answer."""
_NAMESPACES_OF_RAY: Final = frozenset(
    {
        "serve",  # the controller and proxies of Ray Serve, which stay without applications
        "ActorLocationTracker",
        "AutoscalingCoordinator",
        "AutoscalingRequester",
        "DataUsageCollectionActor",
        "ray.dataset",
        "ray_data_shuffle_disk",
    }
)
_NAMESPACES_OF_RAY_BEGIN: Final = ("_ray_internal_", "_dataset_", "_train_")


class Dashboard:
    """The one client of all dashboards. Use inside `async with`, or let `run` keep it open."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def __aenter__(self) -> Self:
        await self._exchange.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exchange.__aexit__(kind, error, trace)

    async def run(self) -> None:
        """Be open until cancelled; a service for `Runtime.service`."""
        async with self:
            await asyncio.Event().wait()

    async def job(self, target: Target, job_id: str) -> JobDetails | None:
        """The job; None if Ray does not know it."""
        try:
            found = await self._ask(target, Ask(path=_job_path(job_id)), JobOnWire)
        except _Absent as absent:
            if job_id in absent.said or "does not exist" in absent.said:
                return None
            raise Refused(404, f"what answers at {target.url} is not Ray's job server") from None
        return found.details()

    async def submit(self, target: Target, submission: JobSubmission) -> str:
        """Submit a job unless Ray has one of its ID; the ID. Ray never has two jobs of one ID, so this may be repeated.

        Ray answers the second submission of an ID by 500. The job that is there is the one meant: its ID was made for
        it.
        """
        try:
            ask = Ask(method="POST", path="/api/jobs/", body=msgspec.json.encode(submission))
            await self._ask(target, ask, SubmittedOnWire)
        except DashboardError as error:
            if error.permanent or isinstance(error, NotLetIn | CannotAsk):
                raise
            try:
                there = await self.job(target, submission.submission_id)
            except DashboardError:
                raise error from None
            if there is None:
                raise
        return submission.submission_id

    async def stop(self, target: Target, job_id: str) -> bool:
        """Ask for the end of a job; whether it was told to stop. One that has ended or is unknown was not."""
        try:
            ask = Ask(method="POST", path=f"{_job_path(job_id)}/stop", body=b"{}")
            return (await self._ask(target, ask, StoppedOnWire)).stopped
        except _Absent:
            return False

    async def serve(self, target: Target) -> ServeDetails:
        """The applications of Ray Serve."""
        ask = Ask(path="/api/serve/applications/?api_type=declarative", limit=_SERVE_LIMIT)
        try:
            found = await self._ask(target, ask, ServeOnWire)
        except _Absent:
            raise Refused(404, f"what answers at {target.url} has no Ray Serve") from None
        if found.parts > _PARTS_LIMIT:
            raise BadAnswer(f"Ray Serve at {target.url} has more than {_PARTS_LIMIT} applications and deployments")
        return found.details()

    async def put_serve(self, target: Target, config: Mapping[str, Any]) -> None:
        """Make Ray Serve be as configured. It answers before the applications run."""
        ask = Ask(method="PUT", path="/api/serve/applications/", body=msgspec.json.encode(config))
        try:
            await self._tell(target, ask)
        except _Absent:
            raise Refused(404, f"what answers at {target.url} has no Ray Serve") from None

    async def head_serves(self, target: Target) -> bool:
        """Whether Ray Serve's proxy at this address takes requests. `target` is the proxy's, not the dashboard's."""
        try:
            await self._tell(target, Ask(path="/-/healthz"))
        except DashboardError:
            return False
        return True

    async def activity(self, target: Target) -> Activity:
        """Whether the cluster has work: a driver, an application of Ray Serve, or an actor of a user. A component that
        cannot tell is enough.

        Ray itself counts living drivers alone. What is served, and actors that are detached, outlive theirs.
        """
        drivers = await self._driver_activity(target)
        if drivers.active:
            return drivers
        if reason := await self._what_is_served(target) or await self._living_actors(target):
            return Activity(active=True, reason=reason, last_activity=drivers.last_activity)
        return drivers

    async def _driver_activity(self, target: Target) -> Activity:
        try:
            found = await self._ask(target, Ask(path="/api/component_activities"), dict[str, ComponentOnWire])
        except _Absent:
            raise Refused(404, f"Ray at {target.url} does not say whether it has work") from None
        busy = [component.reason or name for name, component in found.items() if component.is_active != "INACTIVE"]
        moments = [at for component in found.values() if (at := moment(component.last_activity_at))]
        return Activity(
            active=bool(busy) or not found,
            reason="; ".join(sorted(busy))[:_SAID_LIMIT],
            last_activity=max(moments, default=None),
        )

    async def _what_is_served(self, target: Target) -> str:
        """Applications of Ray Serve, by whatever way they were deployed; empty for none."""
        try:
            found = await self._ask(target, Ask(path="/api/serve/applications/"), _ServedOnWire)
        except _Absent:
            return ""
        except Refused as refused:
            if refused.code == _NOT_INSTALLED:
                return ""
            raise
        return f"Ray Serve has {counted(len(found.applications), 'application')}" if found.applications else ""

    async def _living_actors(self, target: Target) -> str:
        """Actors that live or are to live again; empty if all there are belong to Ray's own libraries."""
        for state in _LIVING:
            path = f"/api/v0/actors?limit={_ACTORS}&filter_keys=state&filter_predicates=%3D&filter_values={state}"
            try:
                found = (await self._ask(target, Ask(path=path), _ActorsOnWire)).data.result.result
            except _Absent:
                raise Refused(404, f"Ray at {target.url} does not say which actors it has") from None
            # So many that not all are told: some may be a user's.
            if len(found) >= _ACTORS or any(not _is_of_ray(actor.ray_namespace or "") for actor in found):
                return f"there are actors in state {state}"
        return ""

    async def _ask[T](self, target: Target, ask: Ask, shape: type[T]) -> T:
        reply = await self._exchange.send(target, ask)
        if not reply.successful:
            raise _refusal(reply, target)
        try:
            return msgspec.json.decode(reply.body, type=shape)
        except (msgspec.DecodeError, RecursionError):
            raise BadAnswer(f"what answers at {target.url} is not Ray's dashboard") from None

    async def _tell(self, target: Target, ask: Ask) -> None:
        reply = await self._exchange.send(target, ask)
        if not reply.successful:
            raise _refusal(reply, target)


class _ServedOnWire(msgspec.Struct, frozen=True):
    applications: dict[str, Any] = {}


class _ActorOnWire(msgspec.Struct, frozen=True):
    ray_namespace: str | None = None


class _ActorList(msgspec.Struct, frozen=True):
    result: list[_ActorOnWire]


class _ActorData(msgspec.Struct, frozen=True):
    result: _ActorList


class _ActorsOnWire(msgspec.Struct, frozen=True):
    data: _ActorData


def _is_of_ray(namespace: str) -> bool:
    """Whether actors of a namespace belong to Ray's own libraries, which leave some of them behind."""
    return namespace in _NAMESPACES_OF_RAY or namespace.startswith(_NAMESPACES_OF_RAY_BEGIN)


class _Absent(Refused):
    """404, which means something else for each call."""

    def __init__(self, said: str) -> None:
        super().__init__(404, f"Ray's dashboard answered 404: {said}")
        self.said = said


class _ApiServerStatus(msgspec.Struct, frozen=True):
    """What the API server answers by itself instead of passing the request on."""

    kind: str
    message: str = ""


def _refusal(reply: Reply, target: Target) -> DashboardError:
    code, said = reply.code, _said(reply.body)
    if target.through_api_server and (status := _status_of_api_server(reply)) is not None:
        return NoAnswer(f"the API server does not reach Ray's dashboard: {_said(status.message.encode())}")
    if code in _NOT_LET_IN:
        return NotLetIn(code, f"Ray's dashboard at {target.url} does not let us in ({code}): {said}")
    if code == _NO_LIKE:
        return _Absent(said)
    if code in _REDIRECTS:
        return BadAnswer(f"what answers at {target.url} redirects to elsewhere, which is not followed")
    return Refused(code, f"Ray's dashboard at {target.url} answered {code}: {said or 'no reason given'}")


def _status_of_api_server(reply: Reply) -> _ApiServerStatus | None:
    try:
        status = msgspec.json.decode(reply.body, type=_ApiServerStatus)
    except msgspec.DecodeError:
        return None
    return status if status.kind == "Status" else None


def _said(answer: bytes) -> str:
    """The last line of an answer: that of a traceback says what happened."""
    lines = [line.strip() for line in answer.decode(errors="replace").splitlines() if line.strip()]
    return "".join(char for char in lines[-1] if char.isprintable())[-_SAID_LIMIT:] if lines else ""


def _job_path(job_id: str) -> str:
    if not is_job_id(job_id):
        raise CannotAsk(f"{job_id!r} cannot be the ID of a job")
    return f"/api/jobs/{quote(job_id, safe='')}"
