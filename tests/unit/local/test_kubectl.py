"""The kubectl that people put on their PATH."""

from pathlib import Path

import pytest

from gpu_control_plane.local.folders import CACHE_VARIABLE
from gpu_control_plane.local.kubectl import find_kubectl, link_kubectl


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs that print their version; the link is elsewhere."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    for version in ("1.36.3", "1.36.4"):
        program = tmp_path / version / "kubectl"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
    return tmp_path


def test_the_link_follows_the_version(programs: Path) -> None:
    old, new = programs / "1.36.3" / "kubectl", programs / "1.36.4" / "kubectl"
    link = link_kubectl(old)
    assert link.resolve() == old
    assert link_kubectl(new) == link
    assert link.resolve() == new
    assert find_kubectl() == link


def test_the_link_on_path_is_not_taken_for_a_program_of_its_own(programs: Path) -> None:
    program = programs / "1.36.3" / "kubectl"
    link = link_kubectl(program)
    assert link_kubectl(link) == link
    elsewhere = programs / "bin"
    elsewhere.symlink_to(link.parent)
    assert link_kubectl(elsewhere / "kubectl") == link
    assert link.resolve() == program
