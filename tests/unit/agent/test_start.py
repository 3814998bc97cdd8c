"""What the command line says reaches the program that is started, though that one never loads click."""

import json
import subprocess
import sys

import msgspec
import pytest

from gpu_control_plane.agent.command_line import agent, read_command_line
from gpu_control_plane.agent.start import Options


def read(*arguments: str) -> Options:
    """As `__main__` hands them over."""
    return msgspec.json.decode(json.dumps(read_command_line([*arguments]), default=str), type=Options)


def test_every_option_has_its_field() -> None:
    assert {option.name for option in agent.params} == set(Options.__struct_fields__)


def test_options_arrive_as_they_were_given() -> None:
    found = read("--node", "worker-3", "--no-exporter", "--driver-root", "/host", "--driver-root", "/opt", "--gdrcopy")
    assert (found.node, found.exporter, found.driver_root, found.gdrcopy) == (
        "worker-3",
        False,
        ("/host", "/opt"),
        True,
    )
    assert (found.kubelet_folder, found.container_driver_root, found.validations) == ("/var/lib/kubelet", (), None)


def test_a_node_is_named_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "worker-4")
    assert read().node == "worker-4"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--simulated", "--discover"), "choose one"),
        (("--restart-runtime",), "goes with --configure-runtime"),
        (("--nvidia-fs", "--no-validator"), "do not go with --no-validator"),
        (("--burn-in-seconds", "0"), "not in the range"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_command_line([*arguments])
    assert (ended.value.code, said in capsys.readouterr().err) == (2, True)


def test_help_is_shown_and_nothing_started(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_command_line(["--help"])
    assert (ended.value.code, "--burn-in" in capsys.readouterr().out) == (0, True)


def test_a_program_that_cannot_run_says_so_in_one_sentence() -> None:
    command = [sys.executable, "-m", "gpu_control_plane.agent", "--discover", "--kubeconfig", "/nowhere/config"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr.startswith("error: There is no kubeconfig at /nowhere/config")) == (1, True)
