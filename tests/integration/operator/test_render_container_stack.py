"""A real API server accepts every object of the operands for containers, field by field."""

from typing import Any

import pytest

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import ApiError
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from integration.operator.strict import accept
from unit.operator.stack.container_builders import CDI_OFF, CONTAINERD, CRIO, DOCKER, NRI, PEOPLES, STATES, policy

COMMON: dict[str, Any] = {
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "100m"}},
    "args": ["--loud"],
    "env": [{"name": "NODE_NAME", "value": "mine"}, {"name": "EXTRA", "value": "1"}],
    "hostNetwork": True,
}
CUSTOMISED: dict[str, Any] = {
    "operator": {"runtimeClass": "cards"},
    "toolkit": {**COMMON, "installDir": "/opt/nvidia", "env": [{"name": "RUNTIME_CONFIG", "value": "/etc/k0s/c.toml"}]},
    "validator": {**COMMON, "cuda": {"env": COMMON["env"]}, "plugin": {"env": COMMON["env"]}},
    "devicePlugin": {**COMMON, "config": {"name": "sharing", "default": "whole"}, "mps": {"root": "/var/mps"}},
    "dcgm": COMMON,
    "dcgmExporter": {
        **COMMON,
        "config": {"name": "metrics"},
        "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
        "annotations": {"team": "ml"},
        "hostPID": True,
        "hpcJobMapping": {"enabled": True},
        "enablePodLabels": True,
        "enablePodUID": True,
        "podLabelAllowlistRegex": ["^app$"],
    },
    "gfd": COMMON,
    "migManager": {**COMMON, "config": {"name": "layouts"}, "gpuClientsConfig": {"name": "clients"}},
    "nodeStatusExporter": COMMON,
    "gds": {"enabled": True},
    "gdrcopy": {"enabled": True},
    "mig": {"strategy": "mixed"},
    "hostPaths": {"rootFS": "/sysroot", "driverInstallDir": "/opt/driver", "kubeletRootDir": "/data/kubelet"},
    "daemonsets": {
        "labels": {"app": "mine", "team": "ml"},
        "annotations": {"team": "ml"},
        "podSecurityContext": {"fsGroup": 1},
    },
}
POLICIES: dict[str, dict[str, Any]] = {"stock": {}, "customised": CUSTOMISED, "without-cdi": CDI_OFF, "nri": NRI}


def _objects(namespace: str, sections: dict[str, Any]) -> list[Manifest]:
    platform = Platform(namespace=namespace, config_maps=PEOPLES)
    scene = RenderInput(policy=policy(**sections), platform=platform, kinds={CONTAINERD: 3, CRIO: 1, DOCKER: 1})
    rendered = [render_state(state, scene) for state in STATES]
    assert not [state.problem for state in rendered if state.problem]
    return [manifest for state in rendered for manifest in state.manifests]


@pytest.mark.parametrize("sections", POLICIES.values(), ids=POLICIES)
async def test_every_object_is_accepted_strictly(client: Client, namespace: str, sections: dict[str, Any]) -> None:
    made = _objects(namespace, sections)
    for manifest in made:
        await accept(client, manifest, namespace)
    names = {manifest["metadata"]["name"] for manifest in made if manifest["kind"] == "DaemonSet"}
    toolkit = "nvidia-container-toolkit-daemonset"
    assert {toolkit, f"{toolkit}-crio", f"{toolkit}-docker", "nvidia-operator-validator", "nvidia-mig-manager"} <= names


async def test_a_field_that_does_not_exist_would_be_refused(client: Client, namespace: str) -> None:
    manifest = next(held for held in _objects(namespace, {}) if held["kind"] == "DaemonSet")
    manifest["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(ApiError, match="hostPid"):
        await accept(client, manifest, namespace)
