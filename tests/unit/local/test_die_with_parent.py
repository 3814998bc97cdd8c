"""Children die with their parent, whichever thread started them, on Linux and elsewhere."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blocking_wait import until
from gpu_control_plane.local import die_with_parent, processes
from gpu_control_plane.local.identity import identify, is_alive

PARENT = """
import subprocess, sys, time
from gpu_control_plane.local import processes
child = processes.spawn(["/bin/sleep", "300"], output=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(300)
"""


def test_children_of_a_killed_parent_die() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = identify(int(parent.stdout.readline()))
        assert is_alive(child)
        parent.kill()
    until(lambda: not is_alive(child))


def test_a_child_outlives_the_thread_that_started_it() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def ask() -> None:
        started.append(processes.spawn(["/bin/sleep", "300"], output=subprocess.DEVNULL))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.3)
    processes.end(started[0])
    assert started[0].returncode == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    child = processes.spawn(["/bin/sh", "-c", "trap '' TERM; echo ready; sleep 300"], output=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    processes.end(child, timeout=0.1)
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL


def test_a_missing_program_is_reported() -> None:
    child = processes.spawn(["/no/such/program"], output=subprocess.PIPE)
    output, _ = child.communicate()
    assert output == b"cannot start /no/such/program: No such file or directory\n"
    assert child.returncode == 127


def watched(program: list[str], pipe: int) -> subprocess.Popen[bytes]:
    """A child as it is started on systems without a parent-death signal."""
    command = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), str(pipe), *program]
    return subprocess.Popen(command, pass_fds=(pipe,), stdout=subprocess.PIPE, process_group=0)


def test_without_a_parent_death_signal_the_end_of_a_pipe_ends_the_child(tmp_path: Path) -> None:
    pipe, parent_end = os.pipe()
    pid_file = tmp_path / "pid"
    with watched(["/bin/sh", "-c", f"echo $$ > {pid_file}; exec sleep 300"], pipe) as shim:
        until(lambda: pid_file.exists() and pid_file.read_text().strip())
        child = identify(int(pid_file.read_text()))
        assert is_alive(child)
        os.close(parent_end)
        until(lambda: not is_alive(child))
    os.close(pipe)
    assert shim.returncode == 1


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 1)])
def test_the_exit_code_of_a_watched_child_is_passed_on(script: str, code: int) -> None:
    pipe, parent_end = os.pipe()
    with watched(["/bin/sh", "-c", script], pipe) as shim:
        assert shim.wait(60) == code
    os.close(parent_end)
    os.close(pipe)


def test_a_watched_child_is_stopped_through_its_group() -> None:
    pipe, parent_end = os.pipe()
    with watched(
        ["/bin/sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"], pipe
    ) as shim:
        assert shim.stdout
        shim.stdout.readline()
        os.killpg(shim.pid, signal.SIGTERM)
        assert shim.stdout.read() == b"bye\n"
    os.close(parent_end)
    os.close(pipe)
    assert shim.returncode == 5
