"""Runs a program in a node's namespaces: `python -m gpu_control_plane.local.node.nsenter PID PROGRAM ARGUMENT…`.

PID is the process of `machine`. A process cannot enter another PID namespace, only its children can, so this one stays
outside, waits, and ends the way the program ends.
"""

import os
import resource
import signal
import sys

from gpu_control_plane.local.die_with_parent import exec_program, set_parent_death_signal

_NAMESPACES = ("pid_for_children", "net", "uts", "mnt")
_UMASK = 0o022
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(machine: int, program: list[str]) -> int:
    namespaces = [os.open(f"/proc/{machine}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES]
    for namespace in namespaces:
        os.setns(namespace)
    # Stop signals are sent to the whole group, so to the program too, which handles them; this process waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    child = os.fork()
    if child == 0:
        set_parent_death_signal()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        # The owner of a local cluster keeps its files private. Those of containers have users of their own.
        os.umask(_UMASK)
        os._exit(exec_program(program))
    _ended, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _end_by(signal.Signals(-code))
    return code


def _end_by(number: signal.Signals) -> None:
    """End by the same signal, without a second core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
