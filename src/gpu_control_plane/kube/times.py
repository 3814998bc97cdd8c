"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def micro_time(moment: datetime) -> str:
    """A `MicroTime`: Leases and Events want exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
