"""Whether settings of our own module are what its schema takes. Deckhouse would refuse them as well, but only in a
cluster that is half installed. Pure."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from gpu_control_plane.kube.schema_faults import Schema, faults


def wrong_settings(settings: Mapping[str, Any]) -> list[str]:
    """Every fault, as a path and what is wrong there."""
    return [f"{path}: {why}" for path, why in faults(settings, _schema(), "spec.settings")]


@cache
def _schema() -> Schema:
    """As `tools/module_settings.py` makes it of the module's own."""
    text = (resources.files("gpu_control_plane.deckhouse") / "module_settings.json").read_text()
    schema: Schema = json.loads(text)
    return schema
