"""Sentences for people: numbers in them, and what others have written."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 node, 2 nodes, 1,000 nodes."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_are(number: int, noun: str) -> str:
    """A number with its noun and verb: 1 node is, 2 nodes are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def one_line(text: str) -> str:
    """A text that somebody else wrote, such as the note of an Event: without line breaks, and without the control
    characters that a terminal would carry out."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
