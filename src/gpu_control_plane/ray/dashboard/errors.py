"""Why a dashboard gave no answer that can be used, each as a sentence for the user of the cluster."""


class DashboardError(Exception):
    """Root of the tree. Two are equal if they say the same, so that a failure that stays is no news."""

    permanent = False
    """Whether asking again will not help."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class NoAnswer(DashboardError):
    """It was not reached, or did not answer in time. What was asked for may have been carried out."""


class BadAnswer(DashboardError):
    """It answered with what is no answer of Ray, or more than is read."""


class RequestRefused(DashboardError):
    """It answered that it did not do it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def permanent(self) -> bool:  # type: ignore[override]
        return self.code in (400, 409, 413, 415, 422)


class Unauthorized(RequestRefused):
    """It wants another token."""


class NotSent(DashboardError):
    """Nothing was sent: an address, an ID or a token is missing or not allowed."""
