"""Manifests of Ray's kinds after what users have, named after what they show; tests load them by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def sample(name: str) -> dict[str, Any]:
    """A manifest, free to be changed."""
    manifest: dict[str, Any] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text())
    return manifest


def changed(name: str, edits: Mapping[str, object]) -> dict[str, Any]:
    """A manifest with other values at paths such as `spec.workerGroupSpecs.0.replicas`; None takes the field away."""
    manifest = sample(name)
    for path, value in edits.items():
        *places, last = path.split(".")
        part: Any = manifest
        for place in places:
            part = part[int(place)] if isinstance(part, list) else part.setdefault(place, {})
        if value is None and isinstance(part, dict):
            part.pop(last, None)
        elif isinstance(part, list):
            part[int(last)] = value
        else:
            part[last] = value
    return manifest
