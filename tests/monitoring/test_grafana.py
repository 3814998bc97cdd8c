"""Grafana's own schema has nothing to say against the dashboards: not their panels, their queries or their units."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from monitoring.dashboards.all import DASHBOARDS
from monitoring.generate import CHART
from monitoring.grafana import Dashboard, Unit

from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.gobuild import find_go
from monitoring.conftest import cannot

SOURCE: Final = Path(__file__).parent / "grafana_schema"
SDK: Final = "github.com/grafana/grafana-foundation-sdk/go"

every_board = pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
pytestmark = pytest.mark.timeout(600)  # the first time, the schema is fetched and compiled


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads dashboards by Grafana's schema."""
    program = tmp_path_factory.mktemp("grafana") / "schema"
    _go("build", "-o", str(program), ".")
    return program


@every_board
def test_grafana_knows_every_field(schema: Path, board: Dashboard) -> None:
    assert not _complaints(schema, CHART / "dashboards" / f"{board.name}.json")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("panels", 1, "options", "legend", "colour"), "red", "unexpected field 'colour'"),
        (("panels", 1, "targets", 0, "query"), "up", "unexpected field 'query'"),
        (("panels", 1, "fieldConfig", "defaults", "custom", "fillOpacity"), "much", "cannot unmarshal string"),
        (("panels", 1, "gridPos", "w"), 25, "w"),
        (("links", 0, "tags"), "all", "links[0].tags"),
    ],
)
def test_a_mistake_is_noticed(
    schema: Path, tmp_path: Path, path: tuple[str | int, ...], value: object, complaint: str
) -> None:
    """Otherwise the test above could not fail."""
    board: Any = json.loads((CHART / "dashboards/gpu-node.json").read_text())
    place = board
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "board.json").write_text(json.dumps(board))
    assert complaint in _complaints(schema, tmp_path / "board.json")


@pytest.mark.parametrize("unit", Unit)
def test_grafana_has_the_unit(unit: Unit) -> None:
    where = _go("list", "-m", "-f", "{{.Dir}}", SDK).strip()
    assert re.search(rf'^const \w+ = "{unit}"$', (Path(where) / "units/types_gen.go").read_text(), re.MULTILINE)


def _complaints(schema: Path, board: Path) -> str:
    return subprocess.run([schema, board], capture_output=True, text=True, check=False).stdout


def _go(*arguments: str) -> str:
    try:
        go = find_go()
    except BuildFailed as why:
        cannot(str(why))
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    done = subprocess.run([go, *arguments], cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        cannot(f"Grafana's schema cannot be had: {done.stderr}")
    return done.stdout
