"""A cluster whose cards are for containers, what is rendered for it, and a table of the operands."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.operands import (
    container_toolkit,
    dcgm,
    dcgm_exporter,
    device_plugin,
    gpu_feature_discovery,
    mig_manager,
    mps_control_daemon,
    node_status_exporter,
    operator_metrics,
    operator_validation,
    prerequisites,
)
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.stack.states import StackState
from unit.api.nvidia.stock import stock_policy

NAMESPACE = "gpu-operator"
OPENSHIFT = OpenShift(version="4.20")
UBUNTU = OperatingSystem("ubuntu", "24.04")
CONTAINERD = NodeKind(system=UBUNTU)
CRIO = NodeKind(system=UBUNTU, runtime=ContainerRuntime.CRIO)
DOCKER = NodeKind(system=UBUNTU, runtime=ContainerRuntime.DOCKER)
PEOPLES: dict[str, dict[str, str]] = {
    "sharing": {"whole": ""},
    "metrics": {"dcgm-metrics.csv": ""},
    "layouts": {"config.yaml": ""},
    "clients": {"clients.yaml": ""},
}
"""The ConfigMaps that policies of tests name."""
CDI_OFF: dict[str, Any] = {"cdi": {"enabled": False}}
NRI: dict[str, Any] = {"cdi": {"nriPluginEnabled": True}}
STATES: tuple[StackState, ...] = (
    prerequisites.STATE,
    operator_metrics.STATE,
    container_toolkit.STATE,
    operator_validation.STATE,
    device_plugin.STATE,
    mps_control_daemon.STATE,
    dcgm.STATE,
    dcgm_exporter.STATE,
    gpu_feature_discovery.STATE,
    mig_manager.STATE,
    node_status_exporter.STATE,
)


def policy(**sections: Mapping[str, Any]) -> ClusterPolicySpec:
    """The stock policy with every operand switched on, and sections changed key by key."""
    spec = stock_policy()["spec"]
    for section in ("dcgm", "nodeStatusExporter"):
        spec[section]["enabled"] = True
    for section, values in sections.items():
        spec[section] = {**spec.get(section, {}), **values}
    return msgspec.convert(spec, ClusterPolicySpec)


def render_input(
    *kinds: NodeKind,
    openshift: OpenShift | None = None,
    service_monitors: bool = True,
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
    images: Mapping[str, str] | None = None,
    **sections: Mapping[str, Any],
) -> RenderInput:
    """One node of each kind, one with containerd if none is named."""
    platform = Platform(
        namespace=NAMESPACE,
        openshift=openshift,
        service_monitors=service_monitors,
        config_maps=PEOPLES if config_maps is None else config_maps,
        images=images or {},
    )
    return RenderInput(policy=policy(**sections), platform=platform, kinds=dict.fromkeys(kinds or (CONTAINERD,), 1))


def objects(state: StackState, scene: RenderInput) -> list[Manifest]:
    rendered = render_state(state, scene)
    assert not rendered.problem
    return copy.deepcopy(list(rendered.manifests))


def of_kind(state: StackState, scene: RenderInput, kind: str) -> list[Manifest]:
    return [manifest for manifest in objects(state, scene) if manifest["kind"] == kind]


def daemonsets(state: StackState, scene: RenderInput) -> list[DaemonSetManifest]:
    return [DaemonSetManifest(manifest) for manifest in of_kind(state, scene, "DaemonSet")]


def daemonset(state: StackState, scene: RenderInput) -> DaemonSetManifest:
    (found,) = daemonsets(state, scene)
    return found


def env(made: DaemonSetManifest, container: str = "") -> dict[str, str]:
    """The variables of a container, the main one by default, that are written out."""
    held = made.container(container) if container else made.main
    return {item["name"]: item["value"] for item in held.manifest.get("env", ()) if "value" in item}


def mounts(made: DaemonSetManifest, container: str = "") -> dict[str, str]:
    """What a container mounts, the main one by default: the folder or ConfigMap behind each path."""
    held = made.container(container) if container else made.main
    return {mount["mountPath"]: _source(made.volume(mount["name"])) for mount in held.manifest.get("volumeMounts", ())}


def _source(volume: Manifest) -> str:
    if "hostPath" in volume:
        return str(volume["hostPath"]["path"])
    return str(volume["configMap"]["name"]) if "configMap" in volume else "emptyDir"


class Row(NamedTuple):
    """An operand and what is known of it with stock values."""

    state: StackState
    section: str
    name: str
    gate: str
    main: str
    image: str
    variable: str
    sees_cards: bool = True
    absent: bool = True
    """Whether it is enabled where the policy does not say."""

    def render_input(self, *kinds: NodeKind, **section: Any) -> RenderInput:
        sections: dict[str, Any] = {self.section: section}
        return render_input(*kinds, **sections)

    def made(self, **section: Any) -> DaemonSetManifest:
        return daemonset(self.state, self.render_input(**section))


_NVCR = "nvcr.io/nvidia"
_PLUGIN = f"{_NVCR}/k8s-device-plugin:v0.20.0"
_VALIDATOR = f"{_NVCR}/gpu-operator:v26.7.0"
ROWS = [
    Row(
        container_toolkit.STATE,
        "toolkit",
        "nvidia-container-toolkit-daemonset",
        "container-toolkit",
        "nvidia-container-toolkit-ctr",
        f"{_NVCR}/k8s/container-toolkit:v1.20.0",
        "CONTAINER_TOOLKIT_IMAGE",
        sees_cards=False,
    ),
    Row(
        operator_validation.STATE,
        "validator",
        "nvidia-operator-validator",
        "operator-validator",
        "nvidia-operator-validator",
        _VALIDATOR,
        "VALIDATOR_IMAGE",
    ),
    Row(
        device_plugin.STATE,
        "devicePlugin",
        "nvidia-device-plugin-daemonset",
        "device-plugin",
        "nvidia-device-plugin",
        _PLUGIN,
        "DEVICE_PLUGIN_IMAGE",
    ),
    Row(
        mps_control_daemon.STATE,
        "devicePlugin",
        "nvidia-device-plugin-mps-control-daemon",
        "device-plugin",
        "mps-control-daemon-ctr",
        _PLUGIN,
        "DEVICE_PLUGIN_IMAGE",
    ),
    Row(
        dcgm.STATE,
        "dcgm",
        "nvidia-dcgm",
        "dcgm",
        "nvidia-dcgm-ctr",
        f"{_NVCR}/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
        "DCGM_IMAGE",
    ),
    Row(
        dcgm_exporter.STATE,
        "dcgmExporter",
        "nvidia-dcgm-exporter",
        "dcgm-exporter",
        "nvidia-dcgm-exporter",
        f"{_NVCR}/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
        "DCGM_EXPORTER_IMAGE",
    ),
    Row(
        gpu_feature_discovery.STATE,
        "gfd",
        "gpu-feature-discovery",
        "gpu-feature-discovery",
        "gpu-feature-discovery",
        _PLUGIN,
        "GFD_IMAGE",
    ),
    Row(
        mig_manager.STATE,
        "migManager",
        "nvidia-mig-manager",
        "mig-manager",
        "nvidia-mig-manager",
        f"{_NVCR}/cloud-native/k8s-mig-manager:v0.15.0",
        "MIG_MANAGER_IMAGE",
    ),
    Row(
        node_status_exporter.STATE,
        "nodeStatusExporter",
        "nvidia-node-status-exporter",
        "node-status-exporter",
        "nvidia-node-status-exporter",
        _VALIDATOR,
        "VALIDATOR_IMAGE",
        sees_cards=False,
        absent=False,
    ),
]
