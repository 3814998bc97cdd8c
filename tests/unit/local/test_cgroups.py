"""A node's control group in either version of the hierarchy, on folders that stand for it."""

from pathlib import Path

import pytest

from gpu_control_plane.local.node import cgroups


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "_MOUNT", tmp_path)
    return tmp_path


def test_in_version_2_controllers_are_enabled_below_the_root(mount: Path) -> None:
    (mount / "cgroup.controllers").write_text("cpu memory\n")
    cgroups.make("node")
    assert (mount / "node").is_dir()
    assert (mount / "cgroup.subtree_control").read_text() == "+memory"  # written after "+cpu"


def test_in_version_1_every_hierarchy_has_the_group(mount: Path) -> None:
    for controller in ("cpu", "memory"):
        (mount / controller).mkdir()
        (mount / controller / "cgroup.procs").touch()
    (mount / "alias").symlink_to("cpu")
    cgroups.make("node")
    assert sorted(path.parent.name for path in mount.glob("*/node")) == ["alias", "cpu", "memory"]


def test_a_group_goes_with_all_below_it_and_may_be_absent(mount: Path) -> None:
    (mount / "cgroup.controllers").write_text("")
    (mount / "node" / "pods" / "pod").mkdir(parents=True)
    cgroups.remove("node")
    assert not (mount / "node").exists()
    cgroups.remove("node")
