"""Manifests of Ray's kinds after what users have, named after what they show; tests load them by name."""

from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def sample(name: str) -> dict[str, Any]:
    """A manifest, free to be changed."""
    manifest: dict[str, Any] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text())
    return manifest
