"""Configuring a runtime: write what is missing, see whether that needs a restart, and take it all back on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpu_control_plane.agent.runtimes import files
from gpu_control_plane.agent.runtimes.interface import Effective, Runtime, RuntimeConfigError, RuntimeReport, Wanted
from gpu_control_plane.agent.runtimes.ledger import Ledger


class Change(msgspec.Struct, frozen=True):
    """What was written, and whether the runtime has to be restarted to know it."""

    files: tuple[Path, ...] = ()
    restart_due: bool = False


class RuntimeConfig:
    """The configuration of one runtime on this node. Calls block."""

    def __init__(self, runtime: Runtime, ledger: Ledger) -> None:
        self._runtime = runtime
        self._ledger = ledger

    @property
    def edited(self) -> tuple[Path, ...]:
        """The files that hold something of ours."""
        return self._ledger.edited

    @property
    def restart_due(self) -> bool:
        """Whether the runtime may not know what was written, as far as its restarts were ours."""
        return self._ledger.restart_due

    def inspect(self) -> RuntimeReport:
        """What the runtime can do as it is configured."""
        return self._runtime.report()

    def verify(self, wanted: Wanted) -> tuple[str, ...]:
        """What the runtime still lacks, in sentences."""
        return self._runtime.report().lacks(wanted)

    def set(self, wanted: Wanted) -> Change:
        """Write what is missing. A runtime that can do everything already, without us, is not touched.

        If the runtime would not start with what was written, the files are put back and an error is raised.
        """
        due = self._ledger.restart_due
        if not self._ledger.edited and not self.verify(wanted):
            return Change(restart_due=due)
        before = self._runtime.effective()
        edits = self._runtime.edits(wanted)
        paths = [edit.path for edit in edits]
        with _put_back_on_failure((*self._ledger.edited, *paths, self._ledger.path)):
            written = [edit.path for edit in edits if self._ledger.write(edit)]
            written += [path for path in self._ledger.edited if path not in paths and self._ledger.undo(path)]
            after = self._runtime.effective()
        return self._changed(written, due=due or after != before)

    def undo(self) -> Change:
        """Take back everything that was ever written; a runtime that cannot be asked any more is no obstacle."""
        due = self._ledger.restart_due
        before = self._effective_if_any()
        written = [path for path in reversed(self._ledger.edited) if self._ledger.undo(path)]
        after = self._effective_if_any()
        return self._changed(written, due=due or after is None or after != before)

    def restart(self, restart: Callable[[], None]) -> bool:
        """Restart the runtime if it is due; whether it was."""
        if not self._ledger.restart_due:
            return False
        restart()
        self._ledger.note_restart(due=False)
        return True

    def _changed(self, written: list[Path], *, due: bool) -> Change:
        self._ledger.note_restart(due=due)
        return Change(tuple(written), due)

    def _effective_if_any(self) -> Effective | None:
        try:
            return self._runtime.effective()
        except RuntimeConfigError:
            return None


@contextmanager
def _put_back_on_failure(paths: tuple[Path, ...]) -> Iterator[None]:
    found = {path: files.read(path) for path in paths}
    try:
        yield
    except Exception:
        for path, content in found.items():
            if content is None:
                files.remove(path)
            elif files.read(path) != content:
                files.replace(path, content)
        raise
