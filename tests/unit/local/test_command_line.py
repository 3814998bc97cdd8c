"""The command line starts at once, exits with a documented code and shows no traceback for expected errors."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_control_plane.cli.main import run
from gpu_control_plane.kube.errors import Unreachable

HEAVY = ("aiohttp", "cryptography", "rich", "yaml", "structlog", "prometheus_client", "grpc", "ssl", "asyncio")


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_CONTROL_PLANE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("GPU_CONTROL_PLANE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPU_CONTROL_PLANE_DEBUG", raising=False)
    return tmp_path


@pytest.mark.parametrize("command", [["--help"], ["up", "--help"], ["down", "--help"], ["status", "--help"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    code = f"""
import sys
from gpu_control_plane.cli.main import run
assert run({command!r}) == 0
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == ""


def test_help_is_immediate(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def processor_time(*arguments: str) -> float:
        """The least of several tries, without the time that others took from us."""
        times = []
        for _ in range(5):
            before = os.times()
            subprocess.run([sys.executable, *arguments], env=environ, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(times)

    assert processor_time("-m", "gpu_control_plane.cli", "--help") - processor_time("-c", "pass") < 0.12


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_every_command_shows_examples(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"  kubectl gpu {command}" in capfd.readouterr().out


def test_an_unknown_command_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["upp"]) == 2
    assert "No such command 'upp'" in capfd.readouterr().err


def test_status_of_nothing_says_what_to_type_and_exits_with_3(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 3
    assert capfd.readouterr().out == "○ There is no cluster gpu.\n\n  kubectl gpu up\n"


def test_status_of_nothing_as_json(empty_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--name", "other", "-o", "json"]) == 3
    assert json.loads(capfd.readouterr().out) == {
        "name": "other",
        "state": "Absent",
        "folder": str(empty_home / "state" / "other"),
        "kubeconfig": None,
        "kubectl": None,
        "server": None,
        "supervisorPid": None,
        "since": None,
        "components": [],
        "nodes": None,
        "error": None,
    }


def test_down_of_nothing_is_fine(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["down"]) == 0
    assert "There is no cluster gpu; nothing to stop." in capfd.readouterr().out


def test_an_error_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--name", "../etc"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("✗ '../etc' cannot be a cluster's name. Use ")


def test_a_taken_port_is_reported_before_anything_is_fetched(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(["up", "--port", str(port)]) == 1
    assert capfd.readouterr().err.startswith(f"✗ Port {port} on 127.0.0.1")


def test_a_broken_state_file_is_reported_with_what_to_do(empty_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = empty_home / "state" / "gpu"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text("{")
    assert run(["status"]) == 1
    assert "cannot be read" in capfd.readouterr().err
    assert run(["down"]) == 0
    assert run(["status"]) == 3


def test_a_folder_that_is_no_cluster_is_never_removed(empty_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    precious = empty_home / "state" / "gpu" / "thesis.tex"
    precious.parent.mkdir(parents=True)
    precious.write_text("...")
    assert run(["down"]) == 1
    assert "holds no cluster" in capfd.readouterr().err
    assert precious.exists()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_CONTROL_PLANE_DEBUG", "1")
    with pytest.raises(Exception, match="cannot be a cluster's name"):
        run(["status", "--name", "../etc"])


def test_errors_of_the_api_are_sentences_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_name: str) -> None:
        raise Unreachable("https://127.0.0.1:1 does not answer. Is the cluster running?")

    monkeypatch.setattr("gpu_control_plane.local.status.cluster_status", unreachable)
    assert run(["status"]) == 1
    assert capfd.readouterr().err == "✗ https://127.0.0.1:1 does not answer. Is the cluster running?\n"


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_gets_colours_unless_it_does_not_want_them(environ: dict[str, str], coloured: bool) -> None:
    ours, theirs = os.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    command = [sys.executable, "-m", "gpu_control_plane.cli", "status"]
    subprocess.run(command, stdout=theirs, env={**kept, "TERM": "xterm", **environ}, check=False)
    printed = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert "There is no cluster gpu." in printed
    assert ("\x1b[" in printed) is coloured


def test_output_has_no_colours_outside_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    run(["status"])
    assert "\x1b" not in capfd.readouterr().out


def test_it_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gpu_control_plane.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("kubectl gpu, version ")
