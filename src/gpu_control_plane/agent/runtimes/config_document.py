"""Configuration files in which single entries are changed and everything else stays as it was written."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gpu_control_plane.agent.runtimes.tables import Keys, PlainValue, delete, find, store
from gpu_control_plane.agent.runtimes.toml_text import TomlText


class DocumentError(Exception):
    """A document cannot be read or safely changed; the sentence says why."""


class SetValue(msgspec.Struct, frozen=True, tag="value"):
    """The document has this value at these keys."""

    keys: Keys
    value: PlainValue


class ListItem(msgspec.Struct, frozen=True, tag="member"):
    """The list at these keys contains this item."""

    keys: Keys
    item: str


type Entry = SetValue | ListItem


class AppliedEntry(msgspec.Struct, frozen=True):
    """An entry that was written, and the value that it replaced."""

    entry: Entry
    replaced: PlainValue | None = None
    """None if there was none."""


class Document(Protocol):
    """A parsed file that keeps its layout. A change that cannot be made safely raises ValueError."""

    @property
    def data(self) -> Mapping[str, Any]:
        """What the file says."""

    def store(self, keys: Keys, value: PlainValue) -> None:
        """Set a value, creating the tables around it."""

    def append(self, keys: Keys, item: str) -> None:
        """Add an item to a list, creating the list if it is missing."""

    def discard(self, keys: Keys, item: str) -> None:
        """Remove an item from a list."""

    def delete(self, keys: Keys) -> None:
        """Remove a value, a list or an empty table."""

    def render(self) -> str:
        """The file as text."""


def parse(path: Path, content: bytes) -> Document:
    """The document in a file of this name; raises DocumentError."""
    try:
        text = content.decode()
        return _Json(text) if path.suffix == ".json" else TomlText(text)
    except ValueError as error:
        raise DocumentError(f"{path} cannot be understood and was left alone: {error}") from error


def holds(document: Document, entry: Entry) -> bool:
    """Whether the document has this entry already."""
    found = find(document.data, entry.keys)
    match entry:
        case SetValue(_, value):
            return type(found) is type(value) and bool(found == value)
        case ListItem(_, item):
            return isinstance(found, list) and item in found


def apply_entry(document: Document, entry: Entry) -> AppliedEntry | None:
    """Write the entry; None if the document has it already. Raises DocumentError."""
    if holds(document, entry):
        return None
    replaced = find(document.data, entry.keys)
    try:
        match entry:
            case SetValue(keys, value) if replaced is None or isinstance(replaced, str | int | float):
                document.store(keys, value)
                return AppliedEntry(entry, replaced)
            case ListItem(keys, item) if replaced is None or isinstance(replaced, list):
                document.append(keys, item)
                return AppliedEntry(entry)
        raise DocumentError(f"{'.'.join(entry.keys)} is of an unexpected kind.")
    except ValueError as error:
        raise DocumentError(f"{'.'.join(entry.keys)} cannot be set safely: {error}") from error


def revert_entry(document: Document, done: AppliedEntry, before: Mapping[str, Any]) -> None:
    """Undo an entry, unless it was changed since. Lists and tables that are empty then and did not exist before are
    removed, too. Raises DocumentError."""
    if not holds(document, done.entry):
        return
    keys = done.entry.keys
    try:
        match done.entry:
            case SetValue() if done.replaced is not None:
                document.store(keys, done.replaced)
            case SetValue():
                document.delete(keys)
            case ListItem(_, item):
                document.discard(keys, item)
        for length in range(len(keys), 0, -1):
            if find(document.data, keys[:length]) in ([], {}) and find(before, keys[:length]) is None:
                document.delete(keys[:length])
    except ValueError as error:
        raise DocumentError(f"{'.'.join(keys)} cannot be removed safely: {error}") from error


class _Json:
    """JSON has no comments; order and indentation are kept."""

    def __init__(self, text: str) -> None:
        data = json.loads(text, object_pairs_hook=_without_duplicates) if text.strip() else {}
        if not isinstance(data, dict):
            raise ValueError("it holds no JSON object.")  # noqa: TRY004 - told like every other fault of the content
        self.data: dict[str, Any] = data
        found = re.search(r'\n([ \t]+)"', text)
        self._indent = found[1] if found else None if text.strip() else "  "
        self._end = "\n" if text.endswith("\n") or not text.strip() else ""

    def store(self, keys: Keys, value: PlainValue) -> None:
        store(self.data, keys, value)

    def append(self, keys: Keys, item: str) -> None:
        store(self.data, keys, [*(find(self.data, keys) or ()), item])

    def discard(self, keys: Keys, item: str) -> None:
        find(self.data, keys).remove(item)

    def delete(self, keys: Keys) -> None:
        delete(self.data, keys)

    def render(self) -> str:
        return json.dumps(self.data, indent=self._indent, ensure_ascii=False) + self._end


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("it has the same key twice.")
    return data
