"""A real API server accepts every object of the operands for virtual machines, field by field."""

from typing import Any

import pytest

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import ApiError
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from integration.operator.strict import accept
from unit.operator.stack.sandbox_builders import RHEL, STATES, UBUNTU, VGPU_IMAGE, policy

COMMON: dict[str, Any] = {
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "100m"}},
    "args": ["--loud"],
    "env": [{"name": "NODE_NAME", "value": "mine"}, {"name": "EXTRA", "value": "1"}],
    "hostNetwork": True,
}
CUSTOMISED: dict[str, dict[str, Any]] = {
    "vgpuManager": {**VGPU_IMAGE, **COMMON, "kernelModuleConfig": {"name": "kernel.parameters"}},
    "vgpuDeviceManager": {**COMMON, "config": {"name": "layouts", "default": "A10-12Q"}},
    "vfioManager": COMMON,
    "sandboxDevicePlugin": COMMON,
    "kataSandboxDevicePlugin": COMMON,
    "ccManager": COMMON,
    "validator": {**COMMON, "vfioPCI": {"env": COMMON["env"]}},
    "hostPaths": {"rootFS": "/sysroot", "driverInstallDir": "/opt/driver"},
    "daemonsets": {
        "updateStrategy": "OnDelete",
        "labels": {"app": "mine", "name": "mine", "team": "ml"},
        "annotations": {"team": "ml"},
        "podSecurityContext": {"fsGroup": 1},
    },
}


def _objects(namespace: str, mode: str, sections: dict[str, dict[str, Any]]) -> list[Manifest]:
    config_maps = {"kernel.parameters": {"nvidia.conf": ""}, "layouts": {"config.yaml": ""}}
    scene = RenderInput(
        policy=policy(mode, **sections),
        platform=Platform(namespace=namespace, config_maps=config_maps),
        kinds={UBUNTU: 3, RHEL: 1},
    )
    rendered = [render_state(state, scene) for state in STATES]
    assert not [state.problem for state in rendered if state.problem]
    return [manifest for state in rendered for manifest in state.manifests]


@pytest.mark.parametrize("mode", ["kubevirt", "kata"])
@pytest.mark.parametrize("sections", [{"vgpuManager": VGPU_IMAGE}, CUSTOMISED], ids=["stock", "customised"])
async def test_every_object_is_accepted_strictly(
    client: Client, namespace: str, mode: str, sections: dict[str, dict[str, Any]]
) -> None:
    made = _objects(namespace, mode, sections)
    for manifest in made:
        await accept(client, manifest, namespace)
    names = {manifest["metadata"]["name"] for manifest in made if manifest["kind"] == "DaemonSet"}
    assert {"nvidia-vgpu-manager-daemonset", "nvidia-vgpu-manager-daemonset-rhel9"} <= names


async def test_a_field_that_does_not_exist_would_be_refused(client: Client, namespace: str) -> None:
    found = _objects(namespace, "kubevirt", {"vgpuManager": VGPU_IMAGE})
    manifest = next(held for held in found if held["kind"] == "DaemonSet")
    manifest["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(ApiError, match="hostPid"):
        await accept(client, manifest, namespace)
