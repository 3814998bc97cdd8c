"""Enters the file system of the host, for a command that runs in a container.

Configuration files name each other by the host's paths, and a runtime's program reads them: only from inside are both
right, wherever the files are. The folder in which a container sees the host may be read-only: it becomes writable for
this process and its children alone.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError

_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_HOST_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def enter_host(root: Path) -> None:
    """From now on `/` is the host's. Everything that is needed afterwards has to be imported by now."""
    try:
        os.unshare(os.CLONE_NEWNS)
        _mount("/", _MS_REC | _MS_PRIVATE)
        _mount(str(root), _MS_REMOUNT | _MS_BIND)
        os.chroot(root)
        os.chdir("/")
    except OSError as error:
        raise RuntimeConfigError(
            f"The host's file system at {root} cannot be entered: {error.strerror}. It takes a privileged container."
        ) from error
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{_HOST_PATH}"
    # systemctl does nothing in what it takes for a system that is only being installed.
    os.environ["SYSTEMD_IGNORE_CHROOT"] = "1"


def _mount(target: str, flags: int) -> None:
    """Change how something is mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", target.encode(), None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
