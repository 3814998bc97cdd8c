"""Starts a program that dies with its parent. A script: `die_with_parent.py PARENT_PID PIPE_FD PROGRAM ARGUMENT…`.

A script of its own, because the death signal has to be set inside the new process before the program starts, and
running Python between fork and exec of a threaded process can deadlock. On Linux the kernel sends the signal (prctl
PR_SET_PDEATHSIG) and this script is replaced by the program. Elsewhere the script stays and reads a pipe whose other
end only the parent holds: when the parent dies, however it dies, the pipe ends.
"""

import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NO_PIPE = -1
_CANNOT_START = 127
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    parent, pipe, program = int(arguments[0]), int(arguments[1]), arguments[2:]
    if pipe != _NO_PIPE:
        return _watch(pipe, program)
    set_parent_death_signal()
    if os.getppid() != parent:  # it died before the signal was set
        return _CANNOT_START
    return exec_program(program)


def set_parent_death_signal() -> None:
    """Let the kernel kill this process when the thread that started it ends. Linux only."""
    import ctypes  # noqa: PLC0415  only Linux gets here

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def exec_program(program: list[str]) -> int:
    """Replace this process by the program; returns an exit code only when that fails."""
    try:
        os.execv(program[0], program)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {program[0]}: {error.strerror}\n")
    return _CANNOT_START


def _watch(pipe: int, program: list[str]) -> int:
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Stop signals are sent to the whole group, so to the child too, which handles them; this process ignores them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        os._exit(exec_program(program))

    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    while True:
        readable, _, _ = select.select([pipe, child_ended], [], [])
        if pipe in readable:
            os.kill(child, signal.SIGKILL)
        if child_ended in readable:
            os.read(child_ended, 64)
        ended, status = os.waitpid(child, 0 if pipe in readable else os.WNOHANG)
        if ended:
            return max(os.waitstatus_to_exitcode(status), 0) or (1 if status else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
