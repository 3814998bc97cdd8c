"""Dashboards are what Grafana can import, and read as they should."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from monitoring.alerts.groups import ALERTS
from monitoring.dashboards.all import DASHBOARDS
from monitoring.generate import CHART, ROOT
from monitoring.grafana import Dashboard, PanelType

NOT_SHOWN = {
    *("GPUControllerDown", "GPUControllerNotLeading", "GPUControllerReplicasMissing", "GPUWebhookCertificateExpires"),
}
"""Who is not there shows nothing, and a certificate has no history."""

every_board = pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)


def test_there_are_the_four_that_were_promised() -> None:
    assert [board.name for board in DASHBOARDS] == ["gpu-inventory", "gpu-node", "gpu-workloads", "gpu-ray"]


@every_board
def test_panels_cover_each_other_nowhere(board: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _file(board)["panels"]:
        cells = set(_cells(panel["gridPos"]))
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(column for column, _ in taken) < 24


@every_board
def test_every_panel_has_its_own_number_and_title(board: Dashboard) -> None:
    panels = _file(board)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    titles = [panel.title for panel in board.panels]
    assert len(set(titles)) == len(titles)


@every_board
def test_only_choices_that_exist_are_used(board: Dashboard) -> None:
    known = {variable.name for variable in board.variables} | {"__rate_interval", "__range"}
    for panel in board.panels:
        for query in panel.queries:
            assert set(re.findall(r"\$(\w+)", query.expr)) <= known


@every_board
def test_every_panel_says_what_it_shows_and_which_runbook_helps(board: Dashboard) -> None:
    known = {alert.name for alert in ALERTS}
    for made, panel in zip(_pictures(board), board.panels, strict=True):
        assert panel.about.endswith("."), panel.title
        assert set(panel.alerts) <= known, panel.title
        assert all((ROOT / page).exists() for page in re.findall(r"docs/runbooks/\w+\.md", made["description"]))


def test_every_alert_has_its_picture() -> None:
    """Somebody who is woken up sees on a dashboard since when, and how many."""
    shown = {name for board in DASHBOARDS for panel in board.panels for name in panel.alerts}
    assert {alert.name for alert in ALERTS} - shown == NOT_SHOWN


@every_board
def test_a_page_of_a_large_cluster_does_not_ask_for_everything_at_first(board: Dashboard) -> None:
    """All cards of a thousand nodes would be eight thousand lines in each picture."""
    for made, variable in zip(_file(board)["templating"]["list"][1:], board.variables, strict=True):
        assert made["includeAll"] is (variable.name != "node")
        assert (made["current"]["value"] == "$__all") is made["includeAll"]


@every_board
def test_every_query_asks_the_chosen_prometheus(board: Dashboard) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asked = [panel["datasource"] for panel in _pictures(board)]
    asked += [target["datasource"] for panel in _pictures(board) for target in panel["targets"]]
    asked += [variable["datasource"] for variable in _file(board)["templating"]["list"][1:]]
    assert all(source == chosen for source in asked)
    assert _file(board)["templating"]["list"][0]["name"] == "datasource"


@every_board
def test_labels_in_legends_are_kept_by_their_query(board: Dashboard) -> None:
    for panel in board.panels:
        for query in panel.queries:
            kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query.expr))))
            assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept, panel.title


@every_board
def test_several_lines_of_a_panel_have_different_legends(board: Dashboard) -> None:
    for panel in board.panels:
        legends = [query.legend for query in panel.queries]
        assert all(legends), panel.title
        assert len(set(legends)) == len(legends), panel.title


@every_board
def test_tables_show_no_times(board: Dashboard) -> None:
    for made, panel in zip(_pictures(board), board.panels, strict=True):
        if panel.look is PanelType.TABLE:
            assert made["transformations"][1]["options"]["excludeByName"] == {"Time": True}
            assert all(target["format"] == "table" for target in made["targets"])


@every_board
def test_links_lead_to_other_dashboards(board: Dashboard) -> None:
    assert set(board.links) == {other.name for other in DASHBOARDS} - {board.name}


def _file(board: Dashboard) -> dict[str, Any]:
    """As it is in the chart."""
    found: dict[str, Any] = json.loads((CHART / "dashboards" / f"{board.name}.json").read_text())
    return found


def _pictures(board: Dashboard) -> list[dict[str, Any]]:
    return [panel for panel in _file(board)["panels"] if panel["type"] != "row"]


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for column in range(place["x"], place["x"] + place["w"]):
        for line in range(place["y"], place["y"] + place["h"]):
            yield column, line
