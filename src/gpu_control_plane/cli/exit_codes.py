"""How commands end, for scripts: the same numbers everywhere."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a number means."""

    OK = 0
    ERROR = 1
    USAGE = 2
    """Click's own for a command line that makes no sense."""
    ABSENT = 3
    """What was asked about does not exist."""
    FINDINGS = 4
    """The command worked, and something needs a person."""
    PARTIAL = 5
    """Some of it could not be read or done; standard error says what."""
    INTERRUPTED = 130
