"""What a pod needs at once, as the scheduler counts it."""

from typing import Any

import pytest

from gpu_control_plane.rules.ray.amounts import pod_devices

A, B = "gpu.deckhouse.io/a", "gpu.deckhouse.io/b"


def asks(*, sidecar: bool = False, **limits: int | str) -> dict[str, Any]:
    names = {"a": A, "b": B, "cpu": "cpu"}
    held: dict[str, Any] = {"resources": {"limits": {names[name]: units for name, units in limits.items()}}}
    return {**held, "restartPolicy": "Always"} if sidecar else held


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers together": ({"containers": [asks(a=1, cpu=4), asks(a=1, b=1)]}, {A: 2, B: 1}),
    "an init container that asks for more": (
        {"initContainers": [asks(a=2, b=1, cpu=4)], "containers": [asks(a=1)]},
        {A: 2, B: 1},
    ),
    "an init container that asks for less": ({"initContainers": [asks(a=1)], "containers": [asks(a=2)]}, {A: 2}),
    "init containers one after the other": ({"initContainers": [asks(a=1), asks(a=1)], "containers": []}, {A: 1}),
    "a sidecar runs beside the containers": (
        {"initContainers": [asks(a=1, sidecar=True)], "containers": [asks(a=1)]},
        {A: 2},
    ),
    "and beside init containers after it": (
        {"initContainers": [asks(a=1, sidecar=True), asks(a=3)], "containers": [asks(a=1)]},
        {A: 4},
    ),
    "what is no number": ({"containers": [asks(a="many", b="0")]}, {}),
    "nothing is written": ({"containers": None, "initContainers": None}, {}),
}


@pytest.mark.parametrize(("spec", "needed"), CASES.values(), ids=CASES.keys())
def test_devices_of_a_pod_are_what_it_needs_at_once(spec: dict[str, Any], needed: dict[str, int]) -> None:
    assert pod_devices(spec) == needed
