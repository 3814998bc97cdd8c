"""The command as a person types it: what it says, what it writes, and how it ends."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpu_control_plane.agent.runtime_record import edited_files
from gpu_control_plane.agent.runtimes.__main__ import runtimes

CONFIG = "# ours\n[crio.runtime]\ncgroup_manager = 'systemd' # keep\n"
PROGRAMS = {
    "crio": 'echo "crio version 1.33.2"',
    "dockerd": 'echo "Docker version 27.5.1, build 0123456"',
    "systemctl": 'echo "$@" >> "$SYSTEMCTL_LOG"',
}
NVIDIA = ("--nvidia-runtime", "/opt/nvidia/runtime")


class Machine:
    """A node with CRI-O and systemd under a folder, and its programs on the path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "etc/crio/crio.conf"
        self.restarts = root / "systemctl.log"
        (root / "run/systemd/system").mkdir(parents=True)
        self.config.parent.mkdir(parents=True)
        self.config.write_text(CONFIG)

    def run(self, command: str, *options: str) -> Result:
        place = ("--runtime", "crio", "--config", str(self.config), "--state", str(self.root / "state"))
        return CliRunner().invoke(runtimes, [command, *place, *options], obj=self.root)

    @property
    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.config.parent.rglob("*") if path.is_file()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in PROGRAMS.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SYSTEMCTL_LOG", str(made.restarts))
    return made


def test_set_brings_what_verify_misses_and_undo_takes_it_back_byte_for_byte(machine: Machine) -> None:
    before = machine.files
    missing = machine.run("verify", *NVIDIA)
    assert (missing.exit_code, "does not know the runtime nvidia" in missing.output) == (1, True)
    assert "runtimes set" in missing.output, "the next command to type"

    done = machine.run("set", *NVIDIA)
    assert done.exit_code == 0
    (written,) = machine.files.keys() - before.keys()
    assert f"changed   {written}" in done.output
    assert "--restart" in done.output
    assert not machine.restarts.exists()

    verified = machine.run("verify", *NVIDIA)
    assert (verified.exit_code, "configured as wanted" in verified.output) == (0, True)
    assert "may not know that yet" in verified.output
    again = machine.run("set", *NVIDIA)
    assert "nothing was written" in again.output

    undone = machine.run("undo")
    assert f"removed   {written}" in undone.output
    assert machine.files == before
    assert machine.run("verify", *NVIDIA).exit_code == 1
    assert "nothing of ours" in machine.run("undo").output


def test_inspect_shows_how_it_is(machine: Machine) -> None:
    machine.run("set", *NVIDIA, "--cdi-folder", "/srv/cdi")
    shown = machine.run("inspect")
    assert shown.exit_code == 0
    assert shown.output.splitlines() == [
        f"cri-o 1.33.2, configured in {machine.config}",
        "  ✓ devices by CDI   yes",
        "  · CDI folders      /srv/cdi",
        "  · runtimes below   nvidia",
        f"  · changed by us    {machine.config.parent}/crio.conf.d/99-gpu-control-plane.toml",
        "  ! restart          due",
    ]


def test_a_restart_happens_only_when_asked_for_and_due(machine: Machine) -> None:
    machine.run("set", *NVIDIA)
    assert not machine.restarts.exists()
    assert "was told to restart" in machine.run("set", *NVIDIA, "--restart").output
    assert machine.restarts.read_text() == "restart crio\n"
    assert "told to restart" not in machine.run("set", *NVIDIA, "--restart").output
    assert machine.run("undo", "--restart").exit_code == 0
    assert machine.restarts.read_text() == "restart crio\n" * 2


def test_what_cannot_be_done_is_a_sentence_and_another_exit_status(machine: Machine) -> None:
    machine.config.write_text("[crio")
    broken = machine.run("verify")
    assert broken.exit_code == 2
    assert broken.output.startswith("Error: ")
    assert str(machine.config) in broken.output
    machine.config.write_text(CONFIG)
    (machine.root / "state").write_text("in the way")
    blocked = machine.run("set", *NVIDIA)
    assert blocked.exit_code == 2
    assert str(machine.root / "state") in blocked.output
    assert machine.files == {str(machine.config): CONFIG.encode()}


def test_each_runtime_has_its_own_memory(machine: Machine) -> None:
    file = machine.root / "daemon.json"
    file.write_text('{"log-driver": "journald"}')
    docker = ("--runtime", "docker", "--config", str(file))
    assert machine.run("set", *NVIDIA).exit_code == 0
    assert machine.run("set", *docker, *NVIDIA).exit_code == 0
    assert "/opt/nvidia/runtime" in file.read_text()
    assert machine.run("undo", *docker).exit_code == 0
    assert file.read_text() == '{"log-driver": "journald"}'
    assert machine.run("verify", *NVIDIA).exit_code == 0


def test_undo_finds_by_itself_what_was_written_and_where_the_runtime_is(machine: Machine) -> None:
    elsewhere = machine.root / "bin" / "crio-of-the-vendor"
    (machine.root / "bin" / "crio").rename(elsewhere)
    before = machine.files
    assert machine.run("set", *NVIDIA, "--program", str(elsewhere), "--unit", "crio-of-the-vendor").exit_code == 0
    assert edited_files(machine.root / "state") == tuple(machine.files.keys() - before.keys())
    undo = ["undo", "--restart", "--state", str(machine.root / "state")]
    assert CliRunner().invoke(runtimes, undo, obj=machine.root).exit_code == 0
    assert machine.files == before
    assert machine.restarts.read_text() == "restart crio-of-the-vendor\n"
    assert not (machine.root / "state").exists(), "nothing is left, not even the log"
    assert edited_files(machine.root / "state") == ()
    assert "nothing of ours" in CliRunner().invoke(runtimes, undo, obj=machine.root).output


def test_docker_is_only_reloaded_where_its_containers_would_not_outlive_a_restart(machine: Machine) -> None:
    file = machine.root / "daemon.json"
    docker = ("--runtime", "docker", "--config", str(file), *NVIDIA, "--default", "--restart")
    for text in ("{}", '{"live-restore": true}'):
        file.write_text(text)
        assert machine.run("set", *docker).exit_code == 0
        assert machine.run("undo", *docker[:4]).exit_code == 0
        assert file.read_text() == text
    assert machine.restarts.read_text().splitlines() == ["reload docker", "restart docker"]


def test_a_default_needs_a_runtime(machine: Machine) -> None:
    refused = machine.run("set", "--default")
    assert refused.exit_code == 2
    assert "--default goes with --nvidia-runtime" in refused.output


def test_what_a_person_wrote_is_not_taken_back_for_the_agent(machine: Machine) -> None:
    machine.run("set", *NVIDIA)
    written = machine.files
    assert "nothing of ours" in machine.run("undo", "--by-agent").output
    assert machine.files == written
    assert "removed" in machine.run("undo").output

    machine.run("set", *NVIDIA, "--by-agent")
    assert "removed" in machine.run("undo", "--by-agent").output
