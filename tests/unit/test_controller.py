"""What the options of the controller process come to."""

from collections.abc import Callable
from typing import cast

import pytest

from gpu_control_plane import controller, inventory
from gpu_control_plane.kube import Runtime


@pytest.mark.parametrize(
    ("options", "believed"),
    [([], set()), (["--nfd-namespace=hardware", "--nfd-namespace=nfd"], {"hardware", "nfd"})],
    ids=["the usual", "two more"],
)
def test_namespaces_of_node_feature_discovery_reach_inventory(
    monkeypatch: pytest.MonkeyPatch, options: list[str], believed: set[str]
) -> None:
    given: list[inventory.Settings] = []

    def process(_name: str, build: Callable[[Runtime], None], **_options: object) -> int:
        build(cast("Runtime", None))
        return 0

    monkeypatch.setattr("gpu_control_plane.kube.main", process)
    monkeypatch.setattr(
        "gpu_control_plane.inventory.controller.build", lambda _runtime, settings: given.append(settings)
    )
    others = [f"--without={name}" for name in ("bootstrap", "pools", "operator")]
    assert controller.command([*others, *options], standalone_mode=False) == 0
    assert [settings.nfd_namespaces for settings in given] == [believed]
