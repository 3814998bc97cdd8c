"""Telling a process from a later one with the same PID, so that no other process is signalled."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec

_START_TIME_FIELD = 19  # of /proc/<pid>/stat, counted after the name, which may hold spaces


class ProcessIdentity(msgspec.Struct, frozen=True):
    pid: int
    started: str
    """Its start time, in the form the system gives it: only equality matters."""


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this PID now; None when there is none or only a zombie."""
    started = _linux_start(pid) if sys.platform == "linux" else _ps_start(pid)
    return ProcessIdentity(pid, started) if started else None


def is_alive(process: ProcessIdentity | None) -> bool:
    return process is not None and identify(process.pid) == process


def _linux_start(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{_boot()}/{fields[_START_TIME_FIELD - 1]}"


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ps_start(pid: int) -> str | None:
    answer = subprocess.run(
        ["/bin/ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() or None if state and not state.startswith("Z") else None
