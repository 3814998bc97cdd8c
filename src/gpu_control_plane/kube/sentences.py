"""Numbers in sentences for people."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 node, 2 nodes, 1,000 nodes."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_are(number: int, noun: str) -> str:
    """A number with its noun and verb: 1 node is, 2 nodes are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"
