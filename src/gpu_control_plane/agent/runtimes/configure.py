"""Configures a container runtime: writes what is missing, tells whether a restart is due, and undoes it on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpu_control_plane.agent.runtimes import atomic_file
from gpu_control_plane.agent.runtimes.edit_log import EditLog, RuntimePlace
from gpu_control_plane.agent.runtimes.interface import (
    ContainerRuntime,
    EffectiveConfig,
    RuntimeConfigError,
    RuntimeReport,
    WantedConfig,
)


class ConfigChange(msgspec.Struct, frozen=True):
    """What was written, and whether the runtime has to be restarted to load it."""

    files: tuple[Path, ...] = ()
    restart_due: bool = False


class RuntimeConfig:
    """The configuration of one container runtime. Calls block."""

    def __init__(self, runtime: ContainerRuntime, edit_log: EditLog, place: RuntimePlace | None = None) -> None:
        self._runtime = runtime
        self._edit_log = edit_log
        self._place = place or RuntimePlace()

    @property
    def edited(self) -> tuple[Path, ...]:
        """The files with edits of ours."""
        return self._edit_log.edited

    @property
    def restart_due(self) -> bool:
        """Whether the runtime may not have loaded what was written; restarts by others are not seen."""
        return self._edit_log.restart_due

    def inspect(self) -> RuntimeReport:
        """What the runtime can do with its configuration."""
        return self._runtime.report()

    def verify(self, wanted: WantedConfig) -> tuple[str, ...]:
        """What the runtime lacks, in sentences."""
        return self._runtime.report().missing(wanted)

    def set(self, wanted: WantedConfig) -> ConfigChange:
        """Write what is missing. A runtime that has everything already is not touched.

        If the runtime would not start with what was written, the files are restored and an error is raised.
        """
        due = self._edit_log.restart_due
        if not self._edit_log.edited and not self.verify(wanted):
            return ConfigChange(restart_due=due)
        before = self._runtime.effective()
        edits = self._runtime.edits(wanted)
        paths = [edit.path for edit in edits]
        with _restore_on_failure((*self._edit_log.edited, *paths, self._edit_log.path)):
            written = [edit.path for edit in edits if self._edit_log.write(edit)]
            written += [path for path in self._edit_log.edited if path not in paths and self._edit_log.undo(path)]
            after = self._runtime.effective()
        return self._changed(written, due=due or after != before)

    def undo(self) -> ConfigChange:
        """Undo everything that was ever written, also if the runtime is no longer installed."""
        due = self._edit_log.restart_due
        before = self._effective_if_any()
        written = [path for path in reversed(self._edit_log.edited) if self._edit_log.undo(path)]
        after = self._effective_if_any()
        return self._changed(written, due=due or after is None or after != before)

    def restart(self, restart: Callable[[], None]) -> bool:
        """Restart the runtime if that is due; says whether it was.

        It counts as done before it begins: a restart may end this very process, whose successor must not do it again.
        """
        if not self._edit_log.restart_due:
            return False
        self._edit_log.note_restart(due=False)
        try:
            restart()
        except (RuntimeConfigError, OSError):
            self._edit_log.note_restart(due=True)
            self._edit_log.note_place(self._place)
            raise
        return True

    def _changed(self, written: list[Path], *, due: bool) -> ConfigChange:
        self._edit_log.note_restart(due=due)
        self._edit_log.note_place(self._place)
        return ConfigChange(tuple(written), due)

    def _effective_if_any(self) -> EffectiveConfig | None:
        try:
            return self._runtime.effective()
        except RuntimeConfigError:
            return None


@contextmanager
def _restore_on_failure(paths: tuple[Path, ...]) -> Iterator[None]:
    found = {path: atomic_file.read(path) for path in paths}
    try:
        yield
    except Exception:
        for path, content in found.items():
            if content is None:
                atomic_file.remove(path)
            elif atomic_file.read(path) != content:
                atomic_file.replace(path, content)
        raise
