"""What can be wrong with a bring-up, as sentences: what, where, what to do."""

from collections.abc import Iterable


class BringUpError(Exception):
    """Root of the errors of this package."""


class BadDescription(BringUpError):
    """The description cannot be rendered. Every problem that was found is a line of its own."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class BadSecret(BringUpError):
    """A secret is not there, or not what it is said to be. The sentence never holds any of it."""
