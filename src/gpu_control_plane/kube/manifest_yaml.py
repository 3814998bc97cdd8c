"""Manifests as YAML, for files that people read. Apart from `crd`, since a process that serves needs no YAML."""

from collections.abc import Iterable
from typing import Any

import yaml


def to_yaml(manifest: dict[str, Any], header: str = "") -> str:
    """Stable YAML: keys in their given order, no aliases, and `header` as comment lines on top."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.dump(
        manifest, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes every value where it stands, and lists of numbers on one line."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the answer is the same for all
        return True

    def represent_sequence(
        self, tag: str, sequence: Iterable[Any], flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        items = list(sequence)
        numbers = bool(items) and all(type(item) is int for item in items)
        return super().represent_sequence(tag, items, flow_style=numbers or flow_style)
