"""The entry point: every process it names can be started, and a wrong name gets the right ones."""

import subprocess
import sys

import pytest
from images import entrypoint


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, entrypoint.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("process", entrypoint.PROCESSES)
def test_every_process_starts(process: str) -> None:
    ran = _run(process, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage:")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [((), "Say which process to run."), (("shell",), "There is no process 'shell' in this image.")],
)
def test_a_wrong_name_gets_the_right_ones(arguments: tuple[str, ...], problem: str) -> None:
    ran = _run(*arguments)
    assert ran.returncode == 1
    assert ran.stderr == f"error: {problem} The first argument is one of: {', '.join(entrypoint.PROCESSES)}.\n"
