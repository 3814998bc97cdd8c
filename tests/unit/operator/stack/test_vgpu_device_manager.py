"""The vGPU device manager: whose layouts it has, and what ours are."""

from typing import Any

import pytest
import yaml

from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.operands.vgpu_device_manager import STATE
from gpu_control_plane.operator.stack.render_input import RenderInput
from unit.operator.stack.sandbox_builders import daemonset, mounts, objects, policy, render_input

OURS = "default-vgpu-devices-config"
THEIRS = {"name": "layouts", "default": "A10-12Q"}


def _render_input(config: dict[str, Any] | None, **platform: Any) -> RenderInput:
    return render_input(policy(vgpuDeviceManager={"config": config}), **platform)


def _layouts(scene: RenderInput) -> list[Manifest]:
    return [manifest for manifest in objects(STATE, scene) if manifest["kind"] == "ConfigMap"]


@pytest.mark.parametrize(
    ("config", "name", "layout"),
    [
        (None, OURS, "default"),
        ({"name": "", "default": ""}, OURS, "default"),
        ({"name": OURS}, OURS, "default"),
        ({"name": "", "default": "T4-8Q"}, OURS, "T4-8Q"),
        (THEIRS, "layouts", "A10-12Q"),
    ],
)
def test_the_policy_names_layouts_and_the_default_one(config: dict[str, Any] | None, name: str, layout: str) -> None:
    scene = _render_input(config, config_maps={"layouts": {"config.yaml": ""}})
    made = daemonset(STATE, scene)
    assert mounts(made, "nvidia-vgpu-device-manager")["/vgpu-config"] == name
    assert made.main.env("CONFIG_FILE") == "/vgpu-config/config.yaml"
    assert made.main.env("DEFAULT_VGPU_CONFIG") == layout
    assert [manifest["metadata"]["name"] for manifest in _layouts(scene)] == ([OURS] if name == OURS else [])


def test_an_edit_of_their_layouts_is_another_pod() -> None:
    made = [
        daemonset(STATE, _render_input(THEIRS, config_maps={"layouts": {"config.yaml": text}})) for text in ("a", "b")
    ]
    first, second = (found.template["metadata"]["annotations"][CONFIG_DIGEST] for found in made)
    assert first != second


def test_it_sees_the_host_and_the_driver() -> None:
    made = daemonset(STATE, render_input(policy(hostPaths={"rootFS": "/sysroot", "driverInstallDir": "/opt/driver"})))
    assert mounts(made, "nvidia-vgpu-device-manager") == {
        "/vgpu-config": OURS,
        "/sys": "/sys",
        "/host": "/sysroot",
        "/driver-root": "/opt/driver",
    }


def _own() -> dict[str, list[dict[str, Any]]]:
    (held,) = [manifest for manifest in assets(STATE.name) if manifest["kind"] == "ConfigMap"]
    document = yaml.safe_load(held["data"]["config.yaml"])
    assert document["version"] == "v1"
    found: dict[str, list[dict[str, Any]]] = document["vgpu-configs"]
    return found


def test_our_layouts_divide_cards_evenly() -> None:
    """The number before the series is the memory of a device in GiB, and a whole, half or quarter of the card's."""
    own = _own()
    whole = {
        (name.rpartition("-")[0], name[-1]): max(
            int(other.rpartition("-")[2][:-1])
            for other in own
            if other.rpartition("-")[0] == name.rpartition("-")[0] and other[-1] == name[-1]
        )
        for name in own
        if name != "default"
    }
    for name, entries in own.items():
        if name != "default":
            assert entries == [{"devices": "all", "vgpu-devices": entries[0]["vgpu-devices"]}]
            ((profile, count),) = entries[0]["vgpu-devices"].items()
            assert profile == name
            card, _, size = name.rpartition("-")
            assert int(size[:-1]) * count == whole[card, size[-1]]


def test_our_usual_layout_halves_every_card_we_know_by_its_pci_id() -> None:
    own = _own()
    usual = own["default"]
    filters = [entry["device-filter"] for entry in usual]
    assert len(set(filters)) == len(filters)
    assert all(word.startswith("0x") and word.endswith("10DE") and len(word) == 10 for word in filters)
    for entry in usual:
        ((profile, count),) = entry["vgpu-devices"].items()
        assert count == 2
        assert profile in own
