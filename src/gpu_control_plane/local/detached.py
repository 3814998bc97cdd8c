"""Starting a supervisor that outlives the command that started it, and recognising it later."""

import os
import sys
from pathlib import Path
from typing import Self

from gpu_control_plane.local.identity import ProcessIdentity, identify, is_alive
from gpu_control_plane.local.logs import tail

_MODULE = "gpu_control_plane.local.supervisor"


class DetachedSupervisor:
    """A supervisor process in a session of its own."""

    def __init__(self, folder: Path, process: ProcessIdentity | None) -> None:
        self.process = process
        self.log = folder / "logs" / "supervisor.log"

    @classmethod
    def start(cls, folder: Path) -> Self:
        log = folder / "logs" / "supervisor.log"
        log.parent.mkdir(exist_ok=True, mode=0o700)
        # Not subprocess: a Popen object warns about a child that is still running when the object is collected.
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE, str(folder)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        return cls(folder, identify(pid))

    def alive(self) -> bool:
        return is_alive(self.process)

    def log_tail(self) -> str:
        return tail(self.log)
