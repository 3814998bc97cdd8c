"""What the agent does about the runtime when it starts, and that nothing of it can keep the agent from starting."""

from pathlib import Path

import structlog

from gpu_control_plane.agent.runtimes.configure import configure_at_start
from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from unit.agent.runtimes.nodes import ContainerdNode
from unit.agent.runtimes.test_containerd import NEW_FILE

WANTED = WantedConfig(handler=RuntimeHandler("/opt/nvidia/runtime"))


def test_what_is_missing_is_written_and_the_restart_left_to_people(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, main=NEW_FILE)
    with structlog.testing.capture_logs() as logs:
        configure_at_start(node.config, WANTED, None)
    assert node.config.verify(WANTED) == ()
    assert [log["log_level"] for log in logs] == ["info", "warning"]
    assert logs[0]["written"] == [str(node.own), str(node.main)]


def test_where_it_is_allowed_the_runtime_is_restarted_once(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, main=NEW_FILE)
    restarts: list[str] = []
    for _ in range(2):
        with structlog.testing.capture_logs() as logs:
            configure_at_start(node.config, WANTED, lambda: restarts.append("now"))
        assert [log["log_level"] for log in logs] == ["info"]
    assert restarts == ["now"]


def test_a_runtime_that_cannot_be_configured_is_told_of_and_nothing_more(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeConfigError("No process answers.")

    node = ContainerdNode(tmp_path, main=NEW_FILE)
    node.breaks_with = node.own
    with structlog.testing.capture_logs() as logs:
        configure_at_start(node.config, WANTED, None)
        node.breaks_with = None
        configure_at_start(node.config, WANTED, fail)
    assert [(log["log_level"], log["why"]) for log in logs] == [
        ("error", "containerd does not like that."),
        ("error", "No process answers."),
    ]
    assert node.config.restart_due
