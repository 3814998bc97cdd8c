"""GPU-hours are read once for everybody, and each person sees whose they are only where they may list pods."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpu_control_plane.cli.usage import show
from gpu_control_plane.console.errors import Unavailable
from gpu_control_plane.console.fleet_caches import FleetCaches
from gpu_control_plane.console.pages.usage import usage_csv
from gpu_control_plane.console.usage_answers import UsageAnswers, read_usage
from gpu_control_plane.console.viewer import Viewer
from gpu_control_plane.kube.client import Client
from gpu_control_plane.usage.hours import By, Hours, add_up
from gpu_control_plane.usage.prometheus import PrometheusError
from gpu_control_plane.usage.reading import Usage

WEEK = timedelta(days=7)
KEYS = {By.NAMESPACE: "team-{}", By.OWNER: "team-{}/Job/train", By.POOL: "pool-{}"}


class _Somebody:
    """Who may list pods in these namespaces, or in all of them."""

    def __init__(self, namespaces: Iterable[str] | None) -> None:
        self._namespaces = namespaces

    async def may(self, _verb: str, _what: str) -> bool:
        return self._namespaces is None

    async def namespaces_with(self, _verb: str, _what: str, among: Iterable[str]) -> frozenset[str]:
        return frozenset(self._namespaces or ()) & set(among)


def _viewer(*namespaces: str, everything: bool = False) -> Viewer:
    return cast("Viewer", _Somebody(None if everything else namespaces))


class _Source:
    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, by: By, _since: timedelta) -> Usage:
        self.asked += 1
        await asyncio.sleep(0)
        hours = [
            Hours(key=KEYS[by].format("a"), held=12, used=6, idle=1, measured=12),
            Hours(key=KEYS[by].format("b"), held=6, used=3, idle=0, measured=6),
            Hours(key=KEYS[by].format("c"), held=4),
        ]
        return Usage(by=by, source="Prometheus", since=168, covered=168, rows=add_up(hours), notes=[])


@pytest.mark.parametrize(("by", "seen"), [(By.NAMESPACE, "team-a"), (By.OWNER, "team-a/Job/train")])
async def test_hours_of_other_namespaces_are_one_row_that_names_nobody(by: By, seen: str) -> None:
    found = await UsageAnswers(_Source()).seen_by(_viewer("team-a"), by, WEEK)
    assert [(row.key, row.held, row.used, row.share, row.unmeasured) for row in found.rows] == [
        (seen, 12, 6, 50.0, 0),
        ("(hidden)", 10, 3, 50.0, 4),
    ]


async def test_who_may_list_no_pods_sees_a_sum() -> None:
    found = await UsageAnswers(_Source()).seen_by(_viewer(), By.NAMESPACE, WEEK)
    assert [(row.key, row.held) for row in found.rows] == [("(hidden)", 22)]


async def test_it_is_read_once_a_minute_for_everybody() -> None:
    source, now = _Source(), 0.0
    answers = UsageAnswers(source, now=lambda: now)
    people = [_viewer(everything=True), _viewer("team-b"), _viewer()]
    await asyncio.gather(*(answers.seen_by(each, By.NAMESPACE, WEEK) for each in people))
    assert source.asked == 1
    assert [len((await answers.seen_by(each, By.POOL, WEEK)).rows) for each in people] == [3, 3, 3]
    assert source.asked == 2
    now = 61.0
    await answers.seen_by(people[0], By.POOL, WEEK)
    assert source.asked == 3


async def test_a_source_that_fails_gives_no_answer_and_is_not_named() -> None:
    async def broken(_by: By, _since: timedelta) -> Usage:
        raise PrometheusError("Prometheus at http://user:password@prometheus does not answer")

    with pytest.raises(Unavailable) as refused:
        await UsageAnswers(broken).seen_by(_viewer(everything=True), By.NAMESPACE, WEEK)
    assert "password" not in str(refused.value)


async def test_the_download_is_what_the_command_writes(capsys: pytest.CaptureFixture[str]) -> None:
    found = await UsageAnswers(_Source()).seen_by(_viewer("team-a"), By.OWNER, WEEK)
    show(found, "csv")
    assert usage_csv(found) == capsys.readouterr().out


async def test_prometheus_is_asked_where_its_address_is_known_and_stays_unnamed() -> None:
    async def answer(_request: web.Request) -> web.Response:
        result = [{"metric": {"namespace": "team-a", "UUID": "GPU-1"}, "value": [0, "3"]}]
        return web.json_response({"status": "success", "data": {"result": result}})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    async with TestServer(app) as server:
        read = read_usage(cast("Client", None), cast("FleetCaches", None), str(server.make_url("")))
        found = await UsageAnswers(read).seen_by(_viewer("team-a"), By.NAMESPACE, WEEK)
    assert [(row.key, row.held, row.used) for row in found.rows] == [("team-a", 3, 3)]
    assert (found.source, found.covered) == ("Prometheus", 3)
