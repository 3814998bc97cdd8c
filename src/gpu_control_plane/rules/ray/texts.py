"""Texts that Kubernetes, Go and Ray read in a way of their own: names, labels, durations, versions."""

import re
from datetime import timedelta
from typing import Final

from gpu_control_plane.rules.ray.problem import Faults

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_WORD: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_KEY: Final = re.compile(rf"(?P<domain>{_DOMAIN}/)?{_WORD}")
_LABEL_VALUE: Final = re.compile(rf"({_WORD})?")
_DOMAIN_LIMIT: Final = 253
_LABEL_LIMIT: Final = 63
_DURATION: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[-.+a-zA-Z].{0,99})?")


def name_faults(name: str, limit: int, *, dns: bool = True) -> Faults:
    """What is wrong with the name of an object; one that the API server has still to make up is right."""
    if len(name) > limit:
        yield (
            "metadata.name",
            f"it has {len(name)} characters, and names of pods and Services are made from it: take {limit} at most",
        )
    if name and dns and _DNS_1035.fullmatch(name) is None:
        yield (
            "metadata.name",
            f"{name} cannot be the name of a Service: take lower case letters, digits and -, and begin with a letter",
        )


def is_dns_label(text: str) -> bool:
    """Whether it may be a part of the name of an object."""
    return len(text) <= _LABEL_LIMIT and _DNS_1123.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    match = _LABEL_KEY.fullmatch(text)
    return match is not None and len(match["domain"] or "") <= _DOMAIN_LIMIT + 1


def is_label_value(text: str) -> bool:
    return _LABEL_VALUE.fullmatch(text) is not None


def is_job_id(text: str) -> bool:
    """Whether it may be the ID of a job of Ray: a part of a path."""
    return text not in ("", ".", "..") and "/" not in text and text.isprintable()


def duration(text: str) -> timedelta | None:
    """A duration as Go writes it, such as 1h30m, or seconds; None for another text."""
    if re.fullmatch(r"[-+]?\d+", text):
        return _seconds(float(text))
    unsigned, total = text.lstrip("+-"), 0.0
    if text[: len(text) - len(unsigned)] not in {"", "+", "-"}:
        return None
    place = 0
    while place < len(unsigned):
        match = _DURATION.match(unsigned, place)
        if match is None or match[0][0] in "+-":
            return None
        total += float(match[1]) * _UNITS[match[3]]
        place = match.end()
    return _seconds(-total if text.startswith("-") else total) if unsigned else None


def ray_version(text: str) -> tuple[int, int, int] | None:
    """A version of Ray as numbers that compare; None for a text that names none."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else None


def at_least(version: str, wanted: tuple[int, int, int]) -> bool:
    """Whether it is this version of Ray or a later one; one that is not known is not."""
    known = ray_version(version)
    return known is not None and known >= wanted


def _seconds(count: float) -> timedelta | None:
    try:
        return timedelta(seconds=count)
    except OverflowError:
        return None
