"""Prometheus' text format, written directly: objects for each sample would take longer than NVML's answers.

The series of one metric come together below its HELP and TYPE, in the order of the catalogue. NaN is left out.
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
    """Samples with the same labels."""

    labels: str
    """As in the text format, without the braces."""
    samples: Mapping[str, float]
    """By metric name."""


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as in the text format, without the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def exposition(series: Iterable[Series]) -> bytes:
    """The text of all series."""
    lines: dict[str, list[str]] = {name: [] for name in _HEADERS}
    for labels, samples in series:
        for name, value in samples.items():
            if value == value:  # noqa: PLR0124 - false for NaN
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
