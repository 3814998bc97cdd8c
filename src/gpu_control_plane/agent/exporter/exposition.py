"""Readings as Prometheus reads them: text, made directly, since objects for each sample would cost more than NVML does.

Series of one metric stand together under its help and type, in the order of the catalogue. A reading that is not a
number counts as none.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpu_control_plane.agent.exporter.catalogue import METRICS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HEADERS: Final = {
    str(metric.name): f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n" for metric in METRICS
}


class Series(NamedTuple):
    """Readings that share their labels."""

    labels: str
    """As they stand between the braces."""
    samples: Mapping[str, float]
    """By the name of the metric."""


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as they stand between the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def exposition(series: Iterable[Series]) -> bytes:
    """Everything a scrape gets to see."""
    lines: dict[str, list[str]] = {name: [] for name in _HEADERS}
    for labels, samples in series:
        for name, value in samples.items():
            if value == value:  # noqa: PLR0124 - not so for what is no number
                try:
                    lines[name].append(f"{name}{{{labels}}} {value}\n")
                except KeyError:
                    lines[name] = [f"{name}{{{labels}}} {value}\n"]
    parts: list[str] = []
    for name, held in lines.items():
        if held:
            parts.append(_HEADERS.get(name) or f"# TYPE {name} untyped\n")
            parts += held
    return "".join(parts).encode()
