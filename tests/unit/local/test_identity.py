"""A process is told from a later one with the same number, and a zombie is not alive."""

import os
import subprocess

from blocking_wait import until
from gpu_control_plane.local.identity import ProcessIdentity, identify, is_alive


def test_a_running_process_is_recognised() -> None:
    assert is_alive(identify(os.getpid()))


def test_a_number_with_another_start_is_a_stranger() -> None:
    assert not is_alive(ProcessIdentity(os.getpid(), "long ago"))


def test_an_ended_process_is_not_alive_even_before_anybody_took_notice() -> None:
    process = subprocess.Popen(["/bin/true"])
    until(lambda: identify(process.pid) is None)
    process.wait()


def test_nobody_is_not_alive() -> None:
    assert not is_alive(None)
