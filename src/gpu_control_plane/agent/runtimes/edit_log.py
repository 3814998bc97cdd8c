"""A log of what the agent wrote into configuration files, so that exactly that can be undone.

A file that was not changed since returns byte for byte to what it was; from one that was changed, only our entries are
removed. The log is written before the file, so a crash in between loses nothing.
"""

import enum
import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from gpu_control_plane.agent.runtime_record import STATE
from gpu_control_plane.agent.runtimes import atomic_file
from gpu_control_plane.agent.runtimes.config_document import (
    AppliedEntry,
    Document,
    DocumentError,
    Entry,
    apply_entry,
    holds,
    parse,
    revert_entry,
)
from gpu_control_plane.agent.runtimes.interface import FileEdit, RuntimeConfigError


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    before: bytes | None
    """The file without our edits; None if there was none."""
    written: tuple[str, ...]
    """Digests of what we may have written: two while a write is under way."""
    done: tuple[AppliedEntry, ...]
    folder_made: bool = False


class Author(enum.StrEnum):
    """Who had something written. What a person did by hand, the agent leaves alone."""

    PERSON = "person"
    AGENT = "agent"


class RuntimePlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a runtime is that is not at the usual places, so that whoever undoes the edits need not know."""

    config: str | None = None
    program: str | None = None
    unit: str | None = None


class _LogFile(msgspec.Struct, kw_only=True):
    restart_due: bool = False
    author: Author = Author.PERSON
    place: RuntimePlace = RuntimePlace()
    files: dict[str, _Record] = {}


class EditLog:
    """What was written for one container runtime, in one small file."""

    def __init__(self, path: Path, author: Author = Author.PERSON) -> None:
        self.path = path
        self._author = author

    @property
    def author(self) -> Author:
        """Who wrote first of what there is to undo."""
        return self._load().author

    @property
    def place(self) -> RuntimePlace:
        """Where the runtime was when it was last configured."""
        return self._load().place

    def note_place(self, place: RuntimePlace) -> None:
        """Remember where the runtime is, if there is anything to undo."""
        log = self._load()
        if log.place != place and (log.files or log.restart_due):
            log.place = place
            self._save(log)

    @property
    def edited(self) -> tuple[Path, ...]:
        """The files with edits of ours."""
        return tuple(Path(name) for name in self._load().files)

    @property
    def restart_due(self) -> bool:
        """Whether the runtime may not have loaded what was written. Every write sets this at first, since a crash may
        follow; a caller that has compared the configurations may reset it."""
        return self._load().restart_due

    def note_restart(self, *, due: bool) -> None:
        log = self._load()
        if log.restart_due is not due:
            log.restart_due = due
            self._save(log)

    def write(self, edit: FileEdit) -> bool:
        """Write the entries of a file; says whether it was changed. A file that cannot be parsed is refused."""
        log = self._load()
        record = log.files.get(str(edit.path))
        current = atomic_file.read(edit.path)
        if current is not None and _settled(parse_file(edit.path, current), edit.entries, record):
            return False
        base = _without_our_edits(edit.path, current, record)
        new, done = _edited(edit, base)
        if not done:
            return self.undo(edit.path)
        present = _digest(current) if current is not None else None
        new_record = _Record(
            before=base,
            written=(_digest(new), *(digest for digest in (record.written if record else ()) if digest == present)),
            done=done,
            folder_made=record.folder_made if record else not edit.path.parent.exists(),
        )
        if not log.files:
            log.author = self._author
        log.files[str(edit.path)] = new_record
        log.restart_due = True
        self._save(log)
        atomic_file.replace(edit.path, new)
        log.files[str(edit.path)] = msgspec.structs.replace(new_record, written=new_record.written[:1])
        self._save(log)
        return True

    def undo(self, path: Path) -> bool:
        """Undo our edits of a file; says whether it was changed."""
        log = self._load()
        record = log.files.get(str(path))
        if record is None:
            return False
        log.restart_due = True
        self._save(log)
        current = atomic_file.read(path)
        base = _without_our_edits(path, current, record)
        if base is None:
            atomic_file.remove(path, with_folder=record.folder_made)
        elif base != current:
            atomic_file.replace(path, base)
        del log.files[str(path)]
        self._save(log)
        return base != current

    def _load(self) -> _LogFile:
        content = atomic_file.read(self.path)
        if content is None:
            return _LogFile(author=self._author)
        try:
            return msgspec.json.decode(content, type=_LogFile)
        except msgspec.DecodeError as error:
            raise RuntimeConfigError(f"{self.path} cannot be understood: {error}") from error

    def _save(self, log: _LogFile) -> None:
        """With mode 0600: the content of a file before may have secrets. With nothing to undo there is no log."""
        if not log.files and not log.restart_due:
            atomic_file.remove(self.path, with_folder=True)
            if self.path.parent == STATE:
                with suppress(OSError):
                    STATE.parent.rmdir()
            return
        atomic_file.replace(self.path, msgspec.json.encode(log), new_mode=0o600)


def parse_file(path: Path, content: bytes) -> Document:
    try:
        return parse(path, content)
    except DocumentError as error:
        raise RuntimeConfigError(str(error)) from error


def _settled(document: Document, entries: tuple[Entry, ...], record: _Record | None) -> bool:
    """Whether the file has all entries, and no other edits of ours."""
    ours = record.done if record else ()
    return all(holds(document, entry) for entry in entries) and all(done.entry in entries for done in ours)


def _without_our_edits(path: Path, current: bytes | None, record: _Record | None) -> bytes | None:
    """The file as it would be without our edits."""
    if record is None or current is None or current == record.before:
        return current
    if _digest(current) in record.written:
        return record.before
    document = parse_file(path, current)
    before = parse_file(path, record.before or b"").data
    try:
        for done in reversed(record.done):
            revert_entry(document, done, before)
    except DocumentError as error:
        raise RuntimeConfigError(f"{path} was left alone: {error}") from error
    if record.before is None and not document.data:
        return None
    return document.render().encode()


def _edited(edit: FileEdit, base: bytes | None) -> tuple[bytes, tuple[AppliedEntry, ...]]:
    """The file with our entries, and those of them that it did not have."""
    document = parse_file(edit.path, base or b"")
    try:
        done = tuple(made for entry in edit.entries if (made := apply_entry(document, entry)))
    except DocumentError as error:
        raise RuntimeConfigError(f"{edit.path} was left alone: {error}") from error
    return document.render().encode(), done


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
