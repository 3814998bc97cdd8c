"""The page on the simulated fleet lists what exists."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.agent.metrics import FleetMetrics
from gpu_control_plane.agent.simulated.models import PROFILES
from gpu_control_plane.cli.main import run
from gpu_control_plane.cli.simulate import command

PAGE = (Path(__file__).parents[3] / "docs" / "simulated-fleet.md").read_text()


def test_the_page_lists_every_metric_as_the_code_describes_it() -> None:
    for metric in vars(FleetMetrics(CollectorRegistry())).values():
        assert f"| `{metric._name}_total` | {metric._documentation} |" in PAGE


def test_the_page_names_every_profile_and_command() -> None:
    for profile in PROFILES:
        assert f"`{profile}`" in PAGE
    for name in command.commands:
        assert f"simulate {name}" in PAGE


def test_the_command_shows_which_profiles_mig_can_partition(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "profiles"]) == 0
    shown = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert shown.keys() == PROFILES.keys()
    for name, profile in PROFILES.items():
        parts = " ".join(each.name for each in profile.mig.profiles) if profile.mig else "cannot be partitioned"
        assert shown[name].endswith(parts)
