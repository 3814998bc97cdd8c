"""The example's description, and small changes of it."""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpu_control_plane.deckhouse.description import ClusterDescription, FileReference, read_description
from gpu_control_plane.deckhouse.render import Rendering, render

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples/deckhouse"


def example() -> Any:
    return deepcopy(_example())


@cache
def _example() -> Any:
    return yaml.safe_load((FOLDER / "cluster.yaml").read_text())


def changed(changes: Mapping[str, Any]) -> str:
    """The example with other values, by path: `nodeGroups.0.containerd`. None takes a value away."""
    content = example()
    for path, value in changes.items():
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        place = content
        for step in steps:
            place = place[step]
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return json.dumps(content)  # which is YAML, and quick


def described(changes: Mapping[str, Any] | None = None) -> ClusterDescription:
    return read_description(changed(changes or {}))


def rendered(changes: Mapping[str, Any] | None = None) -> Rendering:
    cluster = described(changes)
    return render(cluster, {each: _content(each) for _place, each in cluster.certificates})


def _content(reference: FileReference) -> str:
    return (FOLDER / reference.path).read_text()
