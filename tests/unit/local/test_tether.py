"""Children die with their owner, whichever thread started them and whichever way the system keeps the promise."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpu_control_plane.local import processes, tether
from gpu_control_plane.local.identity import identify, is_alive
from unit.local.patience import until

OWNER = """
import subprocess, sys, time
from gpu_control_plane.local import processes
child = processes.spawn(["/bin/sleep", "300"], output=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(300)
"""


def test_a_killed_owner_takes_its_children_along() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        child = identify(int(owner.stdout.readline()))
        assert is_alive(child)
        owner.kill()
    until(lambda: not is_alive(child))


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
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


def test_a_child_that_ignores_the_request_is_killed() -> None:
    child = processes.spawn(["/bin/sh", "-c", "trap '' TERM; echo ready; sleep 300"], output=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    processes.end(child, patience=0.1)
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL


def test_a_missing_program_is_said() -> None:
    child = processes.spawn(["/no/such/program"], output=subprocess.PIPE)
    output, _ = child.communicate()
    assert output == b"cannot start /no/such/program: No such file or directory\n"
    assert child.returncode == 127


def watched(program: list[str], lifeline: int) -> subprocess.Popen[bytes]:
    """A child the way systems without parent-death signals get it."""
    command = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), str(lifeline), *program]
    return subprocess.Popen(command, pass_fds=(lifeline,), stdout=subprocess.PIPE, process_group=0)


def test_where_the_kernel_does_not_help_the_end_of_a_pipe_does(tmp_path: Path) -> None:
    lifeline, owner_end = os.pipe()
    pid_file = tmp_path / "pid"
    with watched(["/bin/sh", "-c", f"echo $$ > {pid_file}; exec sleep 300"], lifeline) as shim:
        until(lambda: pid_file.exists() and pid_file.read_text().strip())
        child = identify(int(pid_file.read_text()))
        assert is_alive(child)
        os.close(owner_end)
        until(lambda: not is_alive(child))
    os.close(lifeline)
    assert shim.returncode == 1


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 1)])
def test_a_watched_child_hands_on_how_it_ended(script: str, code: int) -> None:
    lifeline, owner_end = os.pipe()
    with watched(["/bin/sh", "-c", script], lifeline) as shim:
        assert shim.wait(60) == code
    os.close(owner_end)
    os.close(lifeline)


def test_a_watched_child_is_stopped_through_its_group() -> None:
    lifeline, owner_end = os.pipe()
    with watched(
        ["/bin/sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"], lifeline
    ) as shim:
        assert shim.stdout
        shim.stdout.readline()
        os.killpg(shim.pid, signal.SIGTERM)
        assert shim.stdout.read() == b"bye\n"
    os.close(owner_end)
    os.close(lifeline)
    assert shim.returncode == 5
