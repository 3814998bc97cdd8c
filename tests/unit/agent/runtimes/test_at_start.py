"""What the agent does about the runtime when it starts, and that nothing of it can keep the agent from starting."""

from pathlib import Path

import pytest
import structlog

from gpu_control_plane.agent.runtime_at_start import run_at_start
from unit.agent.runtimes.test_command import CONFIG, NVIDIA


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The options of a node with CRI-O, and its program on the path."""
    program = tmp_path / "bin" / "crio"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "crio version 1.33.2"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    config = tmp_path / "crio" / "crio.conf"
    config.parent.mkdir()
    config.write_text(CONFIG)
    return ("--runtime=crio", f"--config={config}", f"--state={tmp_path / 'state'}", "--by-agent")


def test_what_is_missing_is_written_and_taken_back_when_it_is_no_longer_wanted(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    own = tmp_path / "crio" / "crio.conf.d" / "99-gpu-control-plane.toml"
    with structlog.testing.capture_logs() as logs:
        assert run_at_start("set", (*place, *NVIDIA)) is None
    assert "/opt/nvidia/runtime" in own.read_text()
    assert (logs[0]["log_level"], f"changed   {own}" in logs[0]["said"]) == ("info", True)
    with structlog.testing.capture_logs() as logs:
        assert run_at_start("undo", place) is None
    assert not own.parent.exists()
    assert (tmp_path / "crio" / "crio.conf").read_text() == CONFIG
    assert logs[0]["event"] == "container runtime restored"


def test_a_runtime_that_cannot_be_configured_is_told_of_and_nothing_more(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    (tmp_path / "crio" / "crio.conf").write_text("[crio")
    with structlog.testing.capture_logs() as logs:
        problem = run_at_start("set", (*place, *NVIDIA))
    assert problem is not None
    assert "crio.conf cannot be understood" in problem
    assert [(log["event"], log["why"]) for log in logs] == [("container runtime not configured", problem)]


def test_a_host_that_cannot_be_entered_is_a_sentence(tmp_path: Path, place: tuple[str, ...]) -> None:
    problem = run_at_start("set", (*place, f"--host-root={tmp_path / 'nowhere'}"))
    assert problem is not None
    assert "cannot be entered" in problem
