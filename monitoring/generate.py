"""Writes what comes from the code of this folder: rules and dashboards for the chart, pages on metrics and alerts.

`--check` only says what is stale.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml
from monitoring.alert import rules
from monitoring.alert_page import alert_page
from monitoring.alerts.groups import GROUPS
from monitoring.dashboards.all import DASHBOARDS
from monitoring.reference import page

from gpu_control_plane.api.generate import bring_up_to_date, out_of_date, run

HEADER: Final = "Generated from monitoring/, do not edit: make generate"
ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "charts/gpu-control-plane/monitoring"
RULES: Final = CHART / "rules.yaml"
PAGES: Final = ROOT / "docs"


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    boards = {
        CHART / "dashboards" / f"{board.name}.json": json.dumps(board.json(), indent=1, ensure_ascii=False) + "\n"
        for board in DASHBOARDS
    }
    text = yaml.safe_dump(rules(GROUPS), sort_keys=False, allow_unicode=True, width=10_000)
    pages = {PAGES / "metrics.md": page(HEADER), PAGES / "alerts.md": alert_page(GROUPS, HEADER)}
    return {RULES: f"# {HEADER}\n{text}", **pages, **boards}


def stale() -> list[Path]:
    """Generated files that differ from what the code says, and leftovers of dashboards that are gone."""
    return out_of_date(generated(), _there())


def write() -> list[Path]:
    """Bring every generated file up to date; returns those that changed."""
    return bring_up_to_date(generated(), stale())


def main(arguments: Sequence[str] = ()) -> int:
    return run(generated(), _there(), arguments)


def _there() -> list[Path]:
    return [path for path in CHART.rglob("*.*") if path.is_file()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
