"""The page for people names every switch of the chart and every dashboard there is, and leads on to what exists."""

import re
from pathlib import Path
from typing import Final

import yaml
from monitoring.dashboards.all import DASHBOARDS

from helm.chart import CHART

PAGE_FILE: Final = Path(__file__).parents[2] / "docs/monitoring.md"
PAGE: Final = PAGE_FILE.read_text()
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]


def test_every_switch_is_explained() -> None:
    assert all(f"`monitoring.{part}.enabled=true`" in PAGE for part in VALUES)


def test_values_that_it_names_exist() -> None:
    for part, value in re.findall(r"monitoring\.(\w+)\.(\w+)", PAGE):
        assert value in VALUES[part]


def test_every_dashboard_is_listed() -> None:
    assert all(f"| `{board.name}` |" in PAGE for board in DASHBOARDS)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (PAGE_FILE.parent / target).exists(), target
