"""What `kubectl gpu explain` shows: lines that fit into a terminal, and commands that can be copied."""

import re

import pytest

from gpu_control_plane.cli import explain
from gpu_control_plane.pools.explain.snapshot import PodSnapshot
from unit.pools.test_explain_pod import CASES, explained


@pytest.mark.parametrize("snapshot", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_every_line_fits_and_every_command_stands_alone(
    snapshot: PodSnapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(snapshot)
    explain.show_pod(explain.PodAnswer("Pod default/train waits", found=found))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"! Pod default/train waits: {found.cause}"
    commands = re.findall("`(kubectl [^`]+)`", f"{found.user} {found.admin}")
    for command in commands:
        assert [line for line in lines if line.endswith(f" {command}")]
    assert [line for line in lines if len(line) > 100 and not any(each in line for each in commands)] == []
