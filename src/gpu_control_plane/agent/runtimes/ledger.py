"""The memory of what we wrote into files of others, so that exactly that can be taken back.

A file that nobody else has touched since returns byte for byte to what it was; from one that somebody has, only our
entries go. The ledger is written before the file, so a crash in between loses nothing.
"""

import hashlib
from pathlib import Path

import msgspec

from gpu_control_plane.agent.runtimes import files
from gpu_control_plane.agent.runtimes.documents import (
    Document,
    DocumentError,
    Entry,
    Put,
    holds,
    parse,
    put,
    take_back,
)
from gpu_control_plane.agent.runtimes.interface import FileEdit, RuntimeConfigError


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    before: bytes | None
    """The file without us; None when there was none."""
    written: tuple[str, ...]
    """Digests of what we may have left there: two while a write is under way."""
    done: tuple[Put, ...]
    folder_made: bool = False


class _Pages(msgspec.Struct, kw_only=True):
    restart_due: bool = False
    files: dict[str, _Record] = {}


class Ledger:
    """What was written for one runtime, kept in one small file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def edited(self) -> tuple[Path, ...]:
        """The files that hold something of ours."""
        return tuple(Path(name) for name in self._pages().files)

    @property
    def restart_due(self) -> bool:
        """Whether something was written of which the running program may not know. Every write says so at first, since
        a crash may follow; who compares the configurations can say that it made no difference."""
        return self._pages().restart_due

    def note_restart(self, *, due: bool) -> None:
        pages = self._pages()
        if pages.restart_due is not due:
            pages.restart_due = due
            self._keep(pages)

    def write(self, edit: FileEdit) -> bool:
        """Make a file say what it should; whether it had to be changed. A file that cannot be understood is refused."""
        pages = self._pages()
        record = pages.files.get(str(edit.path))
        current = files.read(edit.path)
        if current is not None and _settled(parse_file(edit.path, current), edit.entries, record):
            return False
        base = _without_us(edit.path, current, record)
        new, done = _edited(edit, base)
        if not done:
            return self.undo(edit.path)
        present = _digest(current) if current is not None else None
        fresh = _Record(
            before=base,
            written=(_digest(new), *(digest for digest in (record.written if record else ()) if digest == present)),
            done=done,
            folder_made=record.folder_made if record else not edit.path.parent.exists(),
        )
        pages.files[str(edit.path)] = fresh
        pages.restart_due = True
        self._keep(pages)
        files.replace(edit.path, new)
        pages.files[str(edit.path)] = msgspec.structs.replace(fresh, written=fresh.written[:1])
        self._keep(pages)
        return True

    def undo(self, path: Path) -> bool:
        """Take everything of ours out of a file; whether it had to be changed."""
        pages = self._pages()
        record = pages.files.get(str(path))
        if record is None:
            return False
        pages.restart_due = True
        self._keep(pages)
        current = files.read(path)
        base = _without_us(path, current, record)
        if base is None:
            files.remove(path, with_folder=record.folder_made)
        elif base != current:
            files.replace(path, base)
        del pages.files[str(path)]
        self._keep(pages)
        return base != current

    def _pages(self) -> _Pages:
        content = files.read(self.path)
        if content is None:
            return _Pages()
        try:
            return msgspec.json.decode(content, type=_Pages)
        except msgspec.DecodeError as error:
            raise RuntimeConfigError(f"{self.path} cannot be understood: {error}") from error

    def _keep(self, pages: _Pages) -> None:
        """Readable to us alone: what stood in a file before may hold secrets."""
        files.replace(self.path, msgspec.json.encode(pages), new_mode=0o600)


def parse_file(path: Path, content: bytes) -> Document:
    try:
        return parse(path, content)
    except DocumentError as error:
        raise RuntimeConfigError(str(error)) from error


def _settled(document: Document, entries: tuple[Entry, ...], record: _Record | None) -> bool:
    """The file says everything it should, and nothing of ours beyond."""
    ours = record.done if record else ()
    return all(holds(document, entry) for entry in entries) and all(done.entry in entries for done in ours)


def _without_us(path: Path, current: bytes | None, record: _Record | None) -> bytes | None:
    """The file as it would be had we never touched it."""
    if record is None or current is None or current == record.before:
        return current
    if _digest(current) in record.written:
        return record.before
    document = parse_file(path, current)
    before = parse_file(path, record.before or b"").data
    try:
        for done in reversed(record.done):
            take_back(document, done, before)
    except DocumentError as error:
        raise RuntimeConfigError(f"{path} was left alone: {error}") from error
    if record.before is None and not document.data:
        return None
    return document.render().encode()


def _edited(edit: FileEdit, base: bytes | None) -> tuple[bytes, tuple[Put, ...]]:
    """The file with our entries, and which of them it did not have."""
    document = parse_file(edit.path, base or b"")
    try:
        done = tuple(made for entry in edit.entries if (made := put(document, entry)))
    except DocumentError as error:
        raise RuntimeConfigError(f"{edit.path} was left alone: {error}") from error
    return document.render().encode(), done


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
