"""Alerts fire when they should, stay quiet in the situation next to it, and say what they ought to say."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from monitoring.alert import LINGER, Alert
from monitoring.alerts.groups import ALERTS
from monitoring.generate import RULES

from gpu_control_plane.inventory.snapshot import Settings
from monitoring.situations import Fired, Situation
from monitoring.situations_of_cards import CARDS
from monitoring.situations_of_nodes import NODES, POOLS
from monitoring.situations_of_processes import PROCESSES, STACK
from monitoring.situations_of_ray import RAY

SITUATIONS = {"cards": CARDS, "nodes": NODES, "pools": POOLS, "ray": RAY, "stack": STACK, "processes": PROCESSES}
BY_NAME = {alert.name: alert for alert in ALERTS}
_SLACK: Final = 10
"""Minutes within which an expression ends after a situation's `until`; versions of Prometheus differ by one."""


def test_prometheus_accepts_the_rules(promtool: Path) -> None:
    done = _run(promtool, "check", "rules", str(RULES))
    assert f"{len(ALERTS)} rules found" in done


@pytest.mark.parametrize("group", SITUATIONS)
def test_alerts_fire_then_and_only_then(group: str, promtool: Path, tmp_path: Path) -> None:
    assert "SUCCESS" in _tried(promtool, tmp_path, group, SITUATIONS[group])


def test_a_deleted_node_is_forgotten_before_an_alert_fires() -> None:
    """Clusters that scale down do so every day."""
    assert timedelta(minutes=_minutes(BY_NAME["GPUInventoryIncomplete"].hold)) > Settings().node_grace_period


def test_every_alert_is_tried_both_ways() -> None:
    situations = [situation for group in SITUATIONS.values() for situation in group]
    fired = {situation.alert for situation in situations if situation.fires}
    quiet = {situation.alert for situation in situations if not situation.fires}
    assert fired == quiet == set(BY_NAME)


def test_a_wrong_expectation_is_noticed(promtool: Path, tmp_path: Path) -> None:
    """Otherwise the tests above could not fail."""
    situation = next(each for each in NODES if each.alert == "GPUDriverMissing" and each.fires)
    with pytest.raises(AssertionError, match="GPUDriverMissing"):
        _tried(promtool, tmp_path, "nodes", [msgspec.structs.replace(situation, fires=(), after=30)])


def _tried(promtool: Path, folder: Path, group: str, situations: Sequence[Situation]) -> str:
    """What promtool says. It is given the rules of the one group: those of others would only cost time."""
    groups = [each for each in yaml.safe_load(RULES.read_text())["groups"] if each["name"].endswith(f".{group}")]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}, allow_unicode=True))
    tests = [_test(BY_NAME[situation.alert], situation) for situation in situations]
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))
    return _run(promtool, "test", "rules", str(folder / "test.yaml"))


def _test(alert: Alert, situation: Situation) -> dict[str, Any]:
    checks: dict[int, Sequence[Fired]] = dict.fromkeys(_quiet(alert, situation), ())
    checks |= dict.fromkeys(_loud(alert, situation), situation.fires)
    return {
        "name": f"{alert.name}: {situation.name}",
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in situation.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": alert.name,
                "exp_alerts": [_expected(alert, fired) for fired in fires],
            }
            for minute, fires in checks.items()
        ],
    }


def _loud(alert: Alert, situation: Situation) -> Iterator[int]:
    """When the alert must have fired."""
    if situation.fires:
        yield situation.since + _minutes(alert.hold)
        if situation.until is not None:
            yield situation.until


def _quiet(alert: Alert, situation: Situation) -> Iterator[int]:
    """When the alert must not fire: just before it is due, and again when it is over."""
    due = situation.since + _minutes(alert.hold)
    if situation.fires and due:
        yield due - 1
    ended = situation.until + _SLACK + _minutes(LINGER) if situation.until is not None else 0
    if ended:
        yield ended
    if not situation.fires or ended:
        yield from range(ended, situation.after + 1, 3)


def _minutes(duration: str) -> int:
    return int(duration[:-1]) * {"m": 1, "h": 60}[duration[-1]]


def _expected(alert: Alert, fired: Fired) -> dict[str, Any]:
    rule = alert.rule()
    return {
        "exp_labels": {**fired.labels, **rule["labels"]},
        "exp_annotations": {name: _rendered(text, fired) for name, text in rule["annotations"].items()},
    }


def _rendered(text: str, fired: Fired) -> str:
    """As Prometheus fills in the text."""
    filled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: fired.labels[found[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", fired.shown, filled)


def _run(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
