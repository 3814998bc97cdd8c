"""Starts a program that dies with its owner. Run as a script: `tether.py OWNER_PID LIFELINE_FD PROGRAM ARGUMENT…`.

A script of its own, because the promise has to be made inside the new process before the program starts, and
running Python between fork and exec of a threaded process can deadlock. On Linux the kernel keeps the promise and
this script vanishes into the program. Elsewhere it stays and watches the lifeline, a pipe whose other end only the
owner holds: when the owner dies, however it dies, the pipe ends.
"""

import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NO_LIFELINE = -1
_CANNOT_START = 127
_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    owner, lifeline, program = int(arguments[0]), int(arguments[1]), arguments[2:]
    if lifeline != _NO_LIFELINE:
        return _watch(lifeline, program)
    die_with_parent()
    if os.getppid() != owner:  # it died before the promise was made
        return _CANNOT_START
    return become(program)


def die_with_parent() -> None:
    import ctypes  # noqa: PLC0415  only Linux gets here

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def become(program: list[str]) -> int:
    try:
        os.execv(program[0], program)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {program[0]}: {error.strerror}\n")
    return _CANNOT_START


def _watch(lifeline: int, program: list[str]) -> int:
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Signals to stop reach the whole group, so the child too: they are the child's to heed, from its first moment on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_STOP)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_STOP)
        os._exit(become(program))

    for number in _TO_STOP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_STOP)
    while True:
        readable, _, _ = select.select([lifeline, child_ended], [], [])
        if lifeline in readable:
            os.kill(child, signal.SIGKILL)
        if child_ended in readable:
            os.read(child_ended, 64)
        ended, status = os.waitpid(child, 0 if lifeline in readable else os.WNOHANG)
        if ended:
            return max(os.waitstatus_to_exitcode(status), 0) or (1 if status else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
