"""The page about NVIDIA's kinds is complete, and its links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_control_plane.api.nvidia import DEFINITIONS, names

PAGE = (Path(__file__).parents[4] / "docs/api-nvidia.md").read_text()


def test_every_link_leads_to_a_heading() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall("^#+ (.*)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= headings


def test_every_kind_section_and_name_is_there() -> None:
    for definition in DEFINITIONS:
        assert f"\n## {definition.resource.kind}\n" in PAGE
        assert all(f"`{name}`" in PAGE for name in definition.short_names)
    for vocabulary in (
        names.NodeLabel,
        names.NodeAnnotation,
        names.StackCondition,
        names.StackReason,
        names.StackEvent,
    ):
        assert all(f"| `{member.value}` |" in PAGE for member in vocabulary)


def test_every_field_of_a_spec_is_in_a_table() -> None:
    for definition in DEFINITIONS:
        spec = definition.schema()["properties"]["spec"]
        missing = [name for name in _names(spec) if not re.search(rf"[`.\]]{re.escape(name)}`", PAGE)]
        assert missing == []


def _names(schema: dict[str, Any]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield name
        yield from _names(field)
    if "items" in schema:
        yield from _names(schema["items"])
