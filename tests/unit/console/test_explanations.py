"""A pod is told the same in its Event, by `kubectl gpu explain pod` and on its page."""

import re
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from gpu_control_plane.cli import explain
from gpu_control_plane.console.rendering import make_environment, render
from gpu_control_plane.console.static_files import StaticFiles
from gpu_control_plane.pools.explain.explanation import Explanation
from gpu_control_plane.pools.explain.snapshot import PodSnapshot
from unit.pools.test_explain_pod import CASES, explained


def page_of(found: Explanation, snapshot: PodSnapshot) -> str:
    """The page of the pod, as text."""
    app = Starlette()
    app.state.templates = make_environment(StaticFiles())
    scope = {"type": "http", "app": app, "method": "GET", "path": "/pods/default/train", "query_string": b""}
    html = render(
        Request({**scope, "headers": [], "state": {}}),
        "pod_verdict.html",
        namespace="default",
        name="train",
        waiting=snapshot.pod,
        explained=found,
        facts=found.facts,
        cards=[],
        pool=None,
        scheduler="",
    )
    return unescape(re.sub("<[^>]+>", " ", html))


def words_of(text: str) -> str:
    """Without what differs by the medium: line breaks, marks around commands, a capital at the beginning."""
    return re.sub(r"[\s`:]+", "", text).lower()


@pytest.mark.parametrize("snapshot", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_event_command_and_page_say_the_same(snapshot: PodSnapshot, capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(snapshot)
    explain.show_pod(explain.PodAnswer("Pod default/train waits", found=found))
    told = {
        "Event": words_of(found.note),
        "command": words_of(capsys.readouterr().out),
        "page": words_of(page_of(found, snapshot)),
    }
    # The command line puts commands below the words between which they stand.
    pieces = "`".join((found.sentence, found.user, found.admin)).split("`")
    for piece in pieces:
        assert [where for where, text in told.items() if words_of(piece) not in text] == [], piece
