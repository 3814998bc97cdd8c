"""Changing TOML as text, so that every byte that is not meant stays where it is.

Libraries that keep comments rebuild the document, and bring together, repeat or refuse tables that people scattered
over a file; containerd's configurations are like that. Here single lines are inserted, replaced or removed, and every
result is read back: it says exactly what was asked for, or the change is refused.
"""

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from gpu_control_plane.agent.runtimes.tables import Keys, PlainValue, delete, find, store

_TOKEN: Final = re.compile(
    r"""
    "{3} (?:\\.|[^\\])*? "{3,5}     # strings of several lines
    | '{3} .*? '{3,5}
    | " (?:\\.|[^"\\\n])* "        # strings of one line
    | ' [^'\n]* '
    | \# [^\n]*                     # comments
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SPACE: Final = " \t\r\n"


class _Statement(msgspec.Struct, frozen=True):
    """A heading, or a key with its value."""

    start: int
    end: int
    """After its last character; a comment behind it is not part of it."""
    keys: Keys
    """Where in the document it is."""
    value: int | None
    """Where its value begins; None for a heading."""
    section: Keys | None
    """The heading it stands under; None in lists of tables, where keys do not tell the place."""


class TomlText:
    """A TOML file. `data` is what it says."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.data: dict[str, Any] = tomllib.loads(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def render(self) -> str:
        return self._text

    def store(self, keys: Keys, value: PlainValue) -> None:
        there = self._value_at(keys)
        literal = json.dumps(value, ensure_ascii=False)
        if there is None:
            text = self._with_line(keys[:-1], f"{_key(keys[-1])} = {literal}")
        else:
            text = self._text[: there.value] + literal + self._text[there.end :]
        self._become(text, lambda data: store(data, keys, value))

    def append(self, keys: Keys, item: str) -> None:
        items = [*(find(self.data, keys) or ()), item]
        there = self._value_at(keys)
        if there is None:
            text = self._with_line(keys[:-1], f"{_key(keys[-1])} = [{json.dumps(item)}]")
        else:
            last, end = self._last_in_list(there)
            comma = "" if last == "[" else " " if last == "," else ", "
            text = self._text[:end] + comma + json.dumps(item) + self._text[end:]
        self._become(text, lambda data: store(data, keys, items))

    def discard(self, keys: Keys, item: str) -> None:
        items = list(find(self.data, keys))
        items.remove(item)
        there = self._value_at(keys)
        if there is None:
            raise ValueError("the list is not written in one place.")
        start, end = self._item_in_list(there, item)
        before, after = self._text[:start], self._text[end:]
        if follows := re.match(r"[ \t]*,[ \t]*", after):
            after = after[follows.end() :]
        else:
            before = re.sub(r",[ \t]*$", "", before)
        self._become(before + after, lambda data: store(data, keys, items))

    def delete(self, keys: Keys) -> None:
        there = self._value_at(keys) or self._heading(keys)
        if there is None:
            raise ValueError("it is not written in a line of its own.")
        start, end = self._text.rfind("\n", 0, there.start) + 1, self._line_end(there.end)
        before = self._text[:start]
        if there.value is None:
            before = re.sub(r"(^|\n)\r?\n$", r"\1", before)
        self._become(before + self._text[end:], lambda data: delete(data, keys), tables_too=False)

    def _become(self, text: str, change: Callable[[dict[str, Any]], None], *, tables_too: bool = True) -> None:
        """Take this text if it says what the change asks for. Where headings go, tables they implied may go too."""
        expected = copy.deepcopy(self.data)
        change(expected)
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"the file is written in an unusual way ({error}).") from error
        if data != expected and (tables_too or _filled(data) != _filled(expected)):
            raise ValueError("the file is written in an unusual way.")
        self._text, self.data = text, data

    def _with_line(self, table: Keys, line: str) -> str:
        """The text with a line in this table, which gets a heading at the end of the file if it has none."""
        statements = list(self._statements())
        inside = [one for one in statements if one.section == table]
        if inside:
            last = inside[-1]
            indent = re.search(r"[ \t]*$", self._text[: last.start])
            return self._inserted(self._line_end(last.end), (indent[0] if indent else "") + line)
        if not table:
            return self._inserted(0 if statements else len(self._text), line)
        heading = f"[{'.'.join(map(_key, table))}]"
        gap = self._newline if self._text.strip() else ""
        return self._inserted(len(self._text), f"{gap}{heading}{self._newline}{line}")

    def _inserted(self, position: int, line: str) -> str:
        before = self._text[:position]
        if before and not before.endswith("\n"):
            before += self._newline
        return before + line + self._newline + self._text[position:]

    def _value_at(self, keys: Keys) -> _Statement | None:
        found = (one for one in self._statements() if one.value is not None and one.section is not None)
        return next((one for one in found if one.keys == keys), None)

    def _heading(self, keys: Keys) -> _Statement | None:
        return next((one for one in self._statements() if one.value is None and one.section == keys), None)

    def _line_end(self, position: int) -> int:
        found = self._text.find("\n", position)
        return len(self._text) if found < 0 else found + 1

    def _last_in_list(self, statement: _Statement) -> tuple[str, int]:
        """The last token of a list before its closing bracket, and where it ends."""
        tokens = [one for one in self._tokens(statement) if one[0] not in _SPACE and not one[0].startswith("#")]
        (last, end), _ = tokens[-2:]
        return last, end

    def _item_in_list(self, statement: _Statement, item: str) -> tuple[int, int]:
        for token, end in self._tokens(statement):
            if token[0] in "\"'" and tomllib.loads(f"x = {token}")["x"] == item:
                return end - len(token), end
        raise ValueError("the item is written in an unusual way.")

    def _tokens(self, statement: _Statement) -> Iterator[tuple[str, int]]:
        for found in _TOKEN.finditer(self._text, statement.value or statement.start, statement.end):
            yield found[0], found.end()

    def _statements(self) -> Iterator[_Statement]:
        position = 0
        section: Keys = ()
        here: Keys | None = section
        while position < len(self._text):
            if self._text[position] in _SPACE:
                position += 1
            elif self._text[position] == "#":
                position = self._line_end(position)
            else:
                start, position = position, _statement_end(self._text, position)
                raw = self._text[start:position]
                if raw.startswith("["):
                    section = _heading_keys(raw)
                    here = None if raw.startswith("[[") else section
                    yield _Statement(start, position, section, None, here)
                else:
                    sign = _sign(raw)
                    keys = (*section, *_heading_keys(f"[{raw[:sign].strip()}]"))
                    value = start + sign + 1 + len(raw[sign + 1 :]) - len(raw[sign + 1 :].lstrip())
                    yield _Statement(start, position, keys, value, here)


def _statement_end(text: str, start: int) -> int:
    depth, end = 0, start
    for found in _TOKEN.finditer(text, start):
        if depth == 0 and found[0][0] in "\n#":
            break
        depth += (found[0] in "[{") - (found[0] in "]}")
        if found[0] not in _SPACE:
            end = found.end()
    return end


def _sign(raw: str) -> int:
    """Where the `=` of a statement is."""
    return next(found.start() for found in _TOKEN.finditer(raw) if found[0] == "=")


def _heading_keys(heading: str) -> Keys:
    """The keys in a heading such as `[plugins."io.containerd.grpc.v1.cri"]`."""
    keys = []
    here = tomllib.loads(heading)
    while here:
        key, inner = next(iter(here.items()))
        keys.append(key)
        here = inner[0] if isinstance(inner, list) else inner
    return tuple(keys)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _filled(data: object) -> object:
    """The same without empty tables."""
    if isinstance(data, dict):
        return {key: _filled(value) for key, value in data.items() if _filled(value) != {}}
    return data
