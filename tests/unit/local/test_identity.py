"""A process is distinguished from a later one with the same PID, and a zombie is not alive."""

import os
import subprocess

from blocking_wait import until
from gpu_control_plane.local.identity import ProcessIdentity, identify, is_alive


def test_a_running_process_is_recognised() -> None:
    assert is_alive(identify(os.getpid()))


def test_a_pid_with_another_start_time_is_another_process() -> None:
    assert not is_alive(ProcessIdentity(os.getpid(), "long ago"))


def test_an_ended_process_is_not_alive_even_before_its_parent_has_waited_for_it() -> None:
    process = subprocess.Popen(["/bin/true"])
    until(lambda: identify(process.pid) is None)
    process.wait()


def test_no_process_is_not_alive() -> None:
    assert not is_alive(None)
