"""`kubectl gpu migrate` as a person types it."""

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml

from gpu_control_plane.cli.main import run
from gpu_control_plane.cli.migration_plan import show_plan
from gpu_control_plane.cli.screen import Screen
from unit.operator.migration.test_plan import daemonset, gpu_node, manifest, planned

HEAVY = ("aiohttp", "yaml", "rich", "msgspec", "asyncio", "ssl")


@pytest.mark.parametrize("command", [[], ["values"], ["plan"], ["take-over"], ["give-back"]])
def test_help_has_examples_and_imports_nothing_heavy(command: list[str]) -> None:
    code = f"""
import sys
from gpu_control_plane.cli.main import run
assert run({["migrate", *command, "--help"]!r}) == 0
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == ""
    assert "kubectl gpu migrate" in ran.stdout.partition("Examples:")[2]


def test_values_are_printed_and_the_rest_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "values.yaml"
    given.write_text("driver: {version: 580, colour: green}\nnfd: {enabled: false}\n".replace("\\\n", "\n"))
    assert run(["migrate", "values", str(given)]) == 0
    out, err = capfd.readouterr()
    assert yaml.safe_load(out)["clusterPolicy"]["spec"]["driver"]["version"] == "580"
    assert "#   driver.colour: green" in out
    assert err.startswith("! driver.colour: unknown. ")
    assert len(err.splitlines()) == 3


@pytest.mark.parametrize("text", ["- a\n", "{", "1: 2\n", "driver: yes\n", "nfd: {}\nnfd: {}\n"])
def test_a_file_that_holds_no_values_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(text)
    assert run(["migrate", "values", str(given)]) == 1
    assert "values.yaml" in capfd.readouterr().err


def test_values_of_a_release_that_has_none_of_its_own_are_the_defaults(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "values.yaml"
    given.write_text("{}\n")
    assert run(["migrate", "values", str(given)]) == 0
    assert "clusterPolicy" in yaml.safe_load(capfd.readouterr().out)


def test_a_plan_fits_on_a_screen() -> None:
    shown = StringIO()
    plan = planned(
        [manifest("nvidia-driver-daemonset", "r/x:2", "OnDelete"), manifest("new")],
        daemonsets=(daemonset("nvidia-driver-daemonset", strategy="OnDelete"), daemonset("old")),
        nodes=(gpu_node("gpu-1"), gpu_node("gpu-2")),
    )
    show_plan(Screen(shown), plan)
    text = shown.getvalue()
    assert re.search(
        r"  ~ nvidia-driver-daemonset +ClusterPolicy/\S+ +changed +4 → 2 +replaced by a driver upgrade", text
    )
    assert "  + new " in text
    assert "  - old " in text
    assert "2: gpu-1, gpu-2" in text
    assert max(map(len, text.splitlines())) <= 150
    assert text.endswith("  kubectl gpu migrate take-over\n")
