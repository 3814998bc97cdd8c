"""Sentences for people: numbers and names in them, and what others have written."""

from collections.abc import Iterable, Sized
from itertools import islice
from typing import Final, Protocol

_NAMES: Final = 5
_NAME_LENGTH: Final = 63


class _Names(Iterable[str], Sized, Protocol):
    pass


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 node, 2 nodes, 1,000 nodes."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_are(number: int, noun: str) -> str:
    """A number with its noun and verb: 1 node is, 2 nodes are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def shortened(text: str, most: int) -> str:
    """A text with parts that somebody else wrote, and that may be as long as that one likes. What is left out is its
    middle: its end says what to do."""
    if len(text) <= most:
        return text
    begin = most * 2 // 3
    return f"{text[:begin]}…{text[begin + 1 - most :]}"


def some_of(names: _Names, between: str = ", ") -> str:
    """Names that somebody else gave, of which there may be thousands: the first ones, and how many more there are."""
    listed = [shortened(name, _NAME_LENGTH) for name in islice(names, _NAMES)]
    more = len(names) - len(listed)
    return between.join([*listed, f"{more:,} more"] if more else listed)


def one_line(text: str) -> str:
    """A text that somebody else wrote, such as the note of an Event: without line breaks, and without the control
    characters that a terminal would carry out."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
