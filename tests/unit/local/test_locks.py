"""Locks hold between processes and vanish with their holder."""

import os
import subprocess
import sys
from pathlib import Path

from blocking_wait import until
from gpu_control_plane.local.locks import exclusive, owner, take
from unit.local.recorded_progress import RecordedProgress

HOLD = """
import pathlib, sys, time
from gpu_control_plane.local.locks import take
assert take(pathlib.Path(sys.argv[1])) is not None
print("held", flush=True)
time.sleep(300)
"""


def test_a_second_process_waits_and_names_the_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    progress = RecordedProgress()
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert owner(lock) == holder.pid
        assert take(lock) is None
        holder.kill()
        with exclusive(lock, progress, "which is busy"):
            assert owner(lock) == os.getpid()
    assert progress.steps in ([], [f"Waiting for process {holder.pid}, which is busy"])


def test_a_lock_is_free_again_after_its_holder_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        holder.kill()
    until(lambda: owner(lock) is None)


def test_removing_the_file_of_a_lock_does_not_let_two_in(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock, RecordedProgress(), "me"):
        stale = os.open(lock, os.O_RDWR)
        lock.unlink()
        with exclusive(lock, RecordedProgress(), "a newcomer"):
            assert take(lock) is None
        os.close(stale)


def test_a_lock_that_does_not_exist_has_no_owner(tmp_path: Path) -> None:
    assert owner(tmp_path / "lock") is None
