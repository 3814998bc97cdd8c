"""What holds for every runtime: written once, restarted only when it matters, and gone without a trace."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from unit.agent.runtimes.nodes import ContainerdNode, CrioNode, DockerNode
from unit.agent.runtimes.test_containerd import NEW_FILE, OLD_FILE

CDI = WantedConfig()
HANDLER = WantedConfig(handler=RuntimeHandler("/opt/nvidia/runtime"))
type Node = ContainerdNode | CrioNode | DockerNode


def nodes(folder: Path) -> list[Node]:
    return [
        ContainerdNode(folder / "old", "1.7.27", OLD_FILE),
        ContainerdNode(folder / "new", "2.1.4", NEW_FILE),
        ContainerdNode(folder / "bare", "1.7.27"),
        CrioNode(
            folder / "crio", "[crio]\n", **{"10-ours.conf": "[crio.runtime] # here\ncgroup_manager = 'systemd'\n"}
        ),
        CrioNode(folder / "bare-crio"),
        DockerNode(folder / "docker", '{\n\t"log-driver": "journald",\n\t"features": {"buildkit": true}\n}'),
        DockerNode(folder / "bare-docker"),
    ]


@pytest.fixture(params=range(7), ids=["old", "new", "bare", "crio", "bare-crio", "docker", "bare-docker"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    number: int = request.param
    return nodes(tmp_path)[number]


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below, but for our own memory."""
    found = (path for path in folder.rglob("*") if "state" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def test_set_brings_what_was_wanted_and_undo_takes_it_away_byte_for_byte(node: Node, tmp_path: Path) -> None:
    before = everything(tmp_path)
    lacked = node.config.verify(HANDLER)
    assert lacked

    node.config.set(HANDLER)
    assert node.config.verify(HANDLER) == ()
    node.config.undo()

    assert node.config.verify(HANDLER) == lacked
    assert everything(tmp_path) == before


def test_a_second_set_changes_no_byte(node: Node, tmp_path: Path) -> None:
    node.config.set(HANDLER)
    after = everything(tmp_path)
    ledgers = [path.stat().st_mtime_ns for path in tmp_path.glob("*/state/*")]

    assert node.config.set(HANDLER).files == ()

    assert everything(tmp_path) == after
    assert [path.stat().st_mtime_ns for path in tmp_path.glob("*/state/*")] == ledgers


def test_what_is_no_longer_wanted_goes(node: Node, tmp_path: Path) -> None:
    node.config.set(HANDLER)
    node.config.set(CDI)

    assert "nvidia" not in node.config.inspect().handlers
    assert node.config.verify(CDI) == ()


def test_a_restart_is_due_until_it_was_made(node: Node) -> None:
    calls: list[str] = []
    assert node.config.set(HANDLER).restart_due
    assert node.config.set(HANDLER).restart_due  # the agent may have died before the restart

    assert node.config.restart(lambda: calls.append("restart"))
    assert not node.config.restart(lambda: calls.append("again"))

    assert calls == ["restart"]
    assert not node.config.set(HANDLER).restart_due


def test_a_restart_that_ends_us_is_not_repeated_by_our_successor(node: Node) -> None:
    """As Docker's does where containers do not outlive it."""
    node.config.set(HANDLER)
    with pytest.raises(KeyboardInterrupt):
        node.config.restart(_killed)
    assert not node.config.restart_due


def test_a_restart_that_failed_stays_due(node: Node) -> None:
    def refused() -> None:
        raise RuntimeConfigError("No process answers.")

    node.config.set(HANDLER)
    with pytest.raises(RuntimeConfigError, match="No process answers"):
        node.config.restart(refused)
    assert node.config.restart_due


def _killed() -> None:
    raise KeyboardInterrupt


def test_a_change_without_effect_needs_no_restart(tmp_path: Path) -> None:
    """Written out is what containerd 2.1 does anyway."""
    node = ContainerdNode(tmp_path, "2.1.4", NEW_FILE)
    node.config.set(HANDLER)
    node.config.restart(lambda: None)
    node.main.write_text(NEW_FILE.replace("enable_cdi = false", "enable_cdi = true"))
    node.config.undo()
    node.config.restart(lambda: None)
    node.main.write_text("version = 3\n")

    assert not node.config.set(CDI).restart_due
    assert node.config.undo().restart_due is False


def test_what_the_runtime_refuses_is_put_back(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.1.4", NEW_FILE)
    node.breaks_with = node.own

    with pytest.raises(RuntimeConfigError, match="does not like that"):
        node.config.set(CDI)

    assert node.files == {str(node.main): NEW_FILE.encode()}
    node.breaks_with = None
    assert node.config.set(CDI).files == (node.own, node.main)


def test_undo_works_after_the_runtime_is_gone(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.1.4", NEW_FILE)
    node.config.set(CDI)
    node.breaks_with = node.main

    assert node.config.undo().restart_due
    assert node.files == {str(node.main): NEW_FILE.encode()}
