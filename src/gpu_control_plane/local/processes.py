"""Child processes that never outlive this process.

Linux ties a child's life to the *thread* that started it, not to the process, so every child of this process is
started by one thread that lives as long as the process does. Callers may come and go on any thread.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import IO

from gpu_control_plane.local import die_with_parent

_NO_PIPE = -1
_POLL_SECONDS = 0.01


def spawn(
    arguments: Sequence[str],
    *,
    output: IO[bytes] | int,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own; it is killed when this process ends, however it ends."""
    pipe = _NO_PIPE if sys.platform == "linux" else _parent_pipe()
    command = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), str(pipe), *arguments]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=cwd,
            process_group=0,
            pass_fds=() if pipe == _NO_PIPE else (pipe,),
        )

    return _on_starter_thread(start)


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> None:
    """Signal a child's whole group and wait until it is gone; after `timeout` seconds it is killed."""
    send(process, number)
    await_end(process, timeout)


def await_end(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for a child that was signalled to end; after `timeout` seconds it is killed."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        send(process, signal.SIGKILL)
        process.wait()


def await_group_end(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for the processes that an ended child has left in its group: killed with it, but perhaps not yet dead."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(_POLL_SECONDS)


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The PID of a child that was waited for may belong to another process by now.
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # macOS says so of a group that holds only a zombie
            pass


def describe_exit(code: int) -> str:
    """How a process ended, for people."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


type _Job = tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]


def _on_starter_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    future: Future[subprocess.Popen[bytes]] = Future()
    _starter().put((start, future))
    return future.result()


@cache
def _starter() -> "queue.SimpleQueue[_Job]":
    jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()

    def run() -> None:
        while True:
            start, future = jobs.get()
            try:
                future.set_result(start())
            except BaseException as error:  # noqa: BLE001  raised in the caller's thread
                future.set_exception(error)

    threading.Thread(target=run, name="process-starter", daemon=True).start()
    return jobs


@cache
def _parent_pipe() -> int:
    """The read end of a pipe that ends with this process: its write end is never closed nor inherited."""
    read_end, _write_end = os.pipe()
    return read_end


# A forked child has neither the thread nor a pipe of its own.
os.register_at_fork(after_in_child=_starter.cache_clear)
os.register_at_fork(after_in_child=_parent_pipe.cache_clear)
