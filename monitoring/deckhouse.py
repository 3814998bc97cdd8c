"""Alerts and dashboards as a Deckhouse module has them: lists of groups, its labels and annotations, its folders.

Expressions are the chart's own. There is no page to link to in a cluster, so an alert carries the text of its runbook.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from monitoring.alert import Alert, Group, Severity
from monitoring.alerts.groups import GROUPS
from monitoring.dashboards.all import DASHBOARDS

FOLDER: Final = "main"
"""Of the dashboards, in Grafana."""
LEVELS: Final[Mapping[Severity, str]] = {Severity.CRITICAL: "3", Severity.WARNING: "5", Severity.INFO: "8"}
"""Deckhouse's levels, from 1, where all is lost, to 9."""
_GROUP: Final = "D8GPUControlPlane,tier=~tier,prometheus=deckhouse,kubernetes=~kubernetes"
_LINK: Final = re.compile(r"\[([^]]+)]\([^)]+\)")
_HEADING: Final = re.compile(r"(?m)^#+ (.+)$")


def monitoring_files(root: Path) -> dict[str, str]:
    """The files of the module's folder `monitoring`, by their paths in it. `root` is that of the repository."""
    rules = {f"prometheus-rules/{group.name}.yaml": _yaml(rule_groups(group, root)) for group in GROUPS}
    boards = {
        f"grafana-dashboards/{FOLDER}/{board.name}.json": json.dumps(board.json(), indent=1, ensure_ascii=False) + "\n"
        for board in DASHBOARDS
    }
    return rules | boards


def rule_groups(group: Group, root: Path) -> Sequence[Mapping[str, Any]]:
    """A file of rules: a list of groups."""
    return [{"name": f"d8.gpu-control-plane.{group.name}", "rules": [_rule(alert, root) for alert in group.alerts]}]


def _rule(alert: Alert, root: Path) -> dict[str, Any]:
    runbook = (root / alert.runbook).read_text()
    return alert.rule() | {
        "labels": {"severity_level": LEVELS[alert.severity], "tier": "cluster"},
        "annotations": {
            "summary": alert.summary,
            "description": f"{alert.description}\n\n{_for_reading(runbook)}",
            "plk_protocol_version": "1",
            "plk_markup_format": "markdown",
            "plk_create_group_if_not_exists__d8_gpu_control_plane": _GROUP,
            "plk_grouped_by__d8_gpu_control_plane": _GROUP,
        },
    }


def _for_reading(runbook: str) -> str:
    """A runbook below the text of an alert: without its title, and without links into the repository."""
    _, _, text = runbook.partition("\n")
    return _HEADING.sub(r"**\1**", _LINK.sub(r"\1", text)).strip() + "\n"


def _yaml(groups: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(_lines(groups)) + "\n"


def _lines(groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Generated from monitoring/ of the repository when the module was packed."
    yield yaml.safe_dump(list(groups), sort_keys=False, allow_unicode=True, width=10_000).rstrip()
