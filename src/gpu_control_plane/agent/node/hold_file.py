"""Keeps in a file which pods hold which units, so that a new agent knows what the kubelet may have forgotten.

It lies in a folder of its own beside the sockets of device plugins: the kubelet leaves folders there alone, and there
is one such place for each kubelet.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpu_control_plane.agent.units import Hold

FILE_NAME: Final = "holds.json"

_log = structlog.get_logger(component="agent.hold_file")


class HoldFile:
    """The file of one node's agent."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._written: frozenset[Hold] | None = None

    def load(self) -> frozenset[Hold]:
        """What the agent before us wrote; nothing if it wrote nothing that makes sense. Blocks."""
        try:
            self._written = frozenset(msgspec.json.decode(self._path.read_bytes(), type=list[Hold]))
        except FileNotFoundError:
            self._written = frozenset()
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("what pods hold was not written down legibly; the kubelet is believed", why=str(error))
            return frozenset()
        return self._written

    def is_current(self, holds: Collection[Hold]) -> bool:
        return self._written == holds

    def save(self, holds: frozenset[Hold]) -> None:
        """Write them, if they differ. Blocks; raises OSError."""
        if self.is_current(holds):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(sorted(holds, key=lambda hold: hold.unit.id)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)
        self._written = holds
