"""Starts a program inside a node's machine: `python -m gpu_control_plane.local.node.inside PID PROGRAM ARGUMENT…`.

PID is the process of `machine`. A process cannot move into another process namespace, only its children can, so this
one stays outside, waits, and ends the way the program ends.
"""

import os
import resource
import signal
import sys

from gpu_control_plane.local import tether

_NAMESPACES = ("pid_for_children", "net", "uts", "mnt")
_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(machine: int, program: list[str]) -> int:
    namespaces = [os.open(f"/proc/{machine}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES]
    for namespace in namespaces:
        os.setns(namespace)
    # Signals to stop reach the whole group: they are the program's to heed, from its first moment on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_STOP)
    child = os.fork()
    if child == 0:
        tether.die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_STOP)
        os._exit(tether.become(program))
    _ended, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _end_by(signal.Signals(-code))
    return code


def _end_by(number: signal.Signals) -> None:
    """Be seen to end by the same signal, without a second core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
