"""The JSON merge patch (RFC 7386) that leads from one document to another: it removes by null."""

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest one; empty where nothing differs."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        held = before.get(key)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            if nested := merge_patch(held, value):
                patch[key] = nested
        elif key not in before or held != value:
            patch[key] = value
    return patch
