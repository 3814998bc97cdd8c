"""When the default image of the driver manager is adopted."""

import copy
from typing import Any

import pytest

from gpu_control_plane.operator.drivers.manager_image import keep_manager
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform
from unit.operator.drivers.builders import NAMESPACE, driver, node

NAMED = {"repository": "r", "image": "manager", "version": "9"}


def made(default: str, **spec: Any) -> Manifest:
    platform = Platform(namespace=NAMESPACE, images={"DRIVER_MANAGER_IMAGE": default})
    found = render_driver(driver("demo", **spec), [node("n", owner="demo")], platform, None)
    return next(manifest for manifest in found if manifest["kind"] == "DaemonSet")


@pytest.mark.parametrize(
    ("old", "new", "image"),
    [
        ({"manager": {}}, {"manager": {}}, "old"),
        ({"manager": {}}, {"manager": {}, "version": "580"}, "new"),
        ({"manager": {}}, {"manager": {}, "labels": {"a": "b"}}, "new"),
        ({"manager": {}}, {"manager": NAMED}, "r/manager:9"),
        ({"manager": NAMED}, {"manager": {}}, "new"),
        ({"manager": {**NAMED, "version": "8"}}, {"manager": NAMED}, "r/manager:9"),
    ],
)
def test_a_new_default_waits_for_another_change(old: dict[str, Any], new: dict[str, Any], image: str) -> None:
    wanted = made("new", **new)
    keep_manager(wanted, copy.deepcopy(made("old", **old)))
    assert DaemonSetManifest(wanted).container("k8s-driver-manager").manifest["image"] == image


def test_the_first_one_takes_the_default() -> None:
    wanted = made("new", manager={})
    keep_manager(wanted, None)
    assert DaemonSetManifest(wanted).container("k8s-driver-manager").manifest["image"] == "new"
