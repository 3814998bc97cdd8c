"""The device plugin, the MPS daemon and feature discovery: their settings, and the choice of a configuration."""

from typing import Any

import pytest

from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST
from gpu_control_plane.operator.stack.operands import device_plugin, gpu_feature_discovery, mps_control_daemon
from gpu_control_plane.operator.stack.states import StackState
from unit.operator.stack.container_builders import CDI_OFF, OPENSHIFT, daemonset, env, mounts, of_kind, render_input

PLUGIN, MPS, GFD = device_plugin.STATE, mps_control_daemon.STATE, gpu_feature_discovery.STATE
SHARING: dict[str, Any] = {"devicePlugin": {"config": {"name": "sharing", "default": "whole"}}}
COMPANIONS = ("config-manager-init", "config-manager")

all_three = pytest.mark.parametrize("state", [PLUGIN, MPS, GFD], ids=lambda state: state.name)


def test_stock_values_of_the_plugin() -> None:
    made = daemonset(PLUGIN, render_input())
    assert (
        env(made).items()
        >= {
            "PASS_DEVICE_SPECS": "true",
            "FAIL_ON_INIT_ERROR": "true",
            "DEVICE_ID_STRATEGY": "uuid",
            "NVIDIA_VISIBLE_DEVICES": "all",
            "MPS_ROOT": "/run/nvidia/mps",
            "CDI_ENABLED": "true",
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
            "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
            "NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        }.items()
    )
    assert mounts(made) == {
        "/entrypoint": "nvidia-device-plugin-entrypoint",
        "/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins",
        "/run/nvidia/validations": "/run/nvidia/validations",
        "/driver-root": "/run/nvidia/driver",
        "/host": "/",
        "/var/run/cdi": "/var/run/cdi",
        "/mps": "/run/nvidia/mps",
        "/dev/shm": "/run/nvidia/mps/shm",  # noqa: S108 - where MPS has its shared memory
    }


def test_stock_values_of_the_mps_daemon() -> None:
    made = daemonset(MPS, render_input())
    assert made.pod["nodeSelector"]["nvidia.com/mps.capable"] == "true"
    assert made.pod["hostPID"] is True
    assert made.pod["serviceAccountName"] == "nvidia-device-plugin"
    assert [held["name"] for held in made.pod["initContainers"]] == ["toolkit-validation", "mps-control-daemon-mounts"]
    assert made.container("mps-control-daemon-mounts").manifest["image"] == made.main.manifest["image"]


def test_stock_values_of_feature_discovery() -> None:
    made = daemonset(GFD, render_input())
    assert env(made).items() >= {"GFD_SLEEP_INTERVAL": "60s", "GFD_FAIL_ON_INIT_ERROR": "true"}.items()
    folder = "/etc/kubernetes/node-feature-discovery/features.d"
    assert mounts(made) == {folder: folder, "/sys": "/sys"}
    assert "USE_NODE_FEATURE_API" not in env(made)


def test_on_openshift_feature_discovery_writes_files() -> None:
    assert env(daemonset(GFD, render_input(openshift=OPENSHIFT)))["USE_NODE_FEATURE_API"] == "false"


def test_without_cdi_the_plugin_names_cards_by_a_variable() -> None:
    told = env(daemonset(PLUGIN, render_input(**CDI_OFF)))
    assert told["DEVICE_LIST_STRATEGY"] == "envvar"
    assert not {"CDI_ENABLED", "CDI_ANNOTATION_PREFIX", "NVIDIA_CDI_HOOK_PATH"} & set(told)


@pytest.mark.parametrize(
    ("toolkit", "path"),
    [
        ({"installDir": "/opt/nvidia/"}, "/opt/nvidia/toolkit/nvidia-cdi-hook"),
        ({"enabled": False}, None),
    ],
)
def test_the_hook_is_where_the_toolkit_is(toolkit: dict[str, Any], path: str | None) -> None:
    assert env(daemonset(PLUGIN, render_input(toolkit=toolkit))).get("NVIDIA_CDI_HOOK_PATH") == path


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({}, set()),
        ({"gds": {"enabled": True}}, {"GDS_ENABLED", "MOFED_ENABLED"}),
        ({"gdrcopy": {"enabled": True}}, {"GDRCOPY_ENABLED"}),
        ({"gds": {"enabled": None}, "gdrcopy": {"enabled": False}}, set()),
    ],
)
def test_the_plugin_offers_add_ons_of_the_driver(sections: dict[str, Any], told: set[str]) -> None:
    known = {"GDS_ENABLED", "MOFED_ENABLED", "GDRCOPY_ENABLED"}
    made = env(daemonset(PLUGIN, render_input(**sections)))
    assert known & set(made) == told
    assert all(made[name] == "true" for name in told)


@all_three
@pytest.mark.parametrize(
    ("strategy", "told", "sees_instances"),
    [("none", "none", False), ("single", "single", True), ("mixed", "mixed", True), (None, None, True)],
)
def test_mig_strategy(state: StackState, strategy: str | None, told: str | None, *, sees_instances: bool) -> None:
    made = env(daemonset(state, render_input(mig={"strategy": strategy})))
    assert made.get("MIG_STRATEGY") == told
    assert (made.get("NVIDIA_MIG_MONITOR_DEVICES") == "all") is sees_instances


@pytest.mark.parametrize("state", [PLUGIN, MPS], ids=lambda state: state.name)
def test_the_folder_of_mps_can_be_elsewhere(state: StackState) -> None:
    made = daemonset(state, render_input(devicePlugin={"mps": {"root": "/var/mps/"}}))
    assert mounts(made)["/mps"] == "/var/mps"
    assert mounts(made)["/dev/shm"] == "/var/mps/shm"  # noqa: S108 - where MPS has its shared memory
    assert env(made).get("MPS_ROOT") == ("/var/mps" if state is PLUGIN else None)


@all_three
def test_without_configurations_there_is_nothing_to_choose(state: StackState) -> None:
    made = daemonset(state, render_input())
    assert not any(made.has(name) for name in COMPANIONS)
    assert "shareProcessNamespace" not in made.pod
    assert "CONFIG_FILE" not in env(made)


@all_three
def test_a_node_chooses_its_configuration_by_a_label(state: StackState) -> None:
    made = daemonset(state, render_input(**SHARING))
    assert env(made)["CONFIG_FILE"] == "/config/config.yaml"
    for name in (*COMPANIONS, made.main.name):
        assert mounts(made, name).items() >= {"/available-configs": "sharing", "/config": "emptyDir"}.items()
    for name in COMPANIONS:
        told = env(made, name)
        assert told["NODE_LABEL"] == "nvidia.com/device-plugin.config"
        assert told["DEFAULT_CONFIG"] == "whole"
        assert told["FALLBACK_STRATEGIES"] == "empty"
        assert made.container(name).manifest["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    assert env(made, "config-manager-init").items() >= {"ONESHOT": "true", "SEND_SIGNAL": "false"}.items()
    assert env(made, "config-manager").items() >= {"ONESHOT": "false", "SEND_SIGNAL": "true", "SIGNAL": "1"}.items()


@pytest.mark.parametrize(
    ("state", "process"),
    [(PLUGIN, "nvidia-device-plugin"), (MPS, "mps-control-daemon"), (GFD, "gpu-feature-discovery")],
)
def test_the_config_manager_can_signal_the_program(state: StackState, process: str) -> None:
    made = daemonset(state, render_input(**SHARING))
    assert env(made, "config-manager")["PROCESS_TO_SIGNAL"] == process
    assert made.pod.get("hostPID") or made.pod.get("shareProcessNamespace")
    assert not (made.pod.get("hostPID") and "shareProcessNamespace" in made.pod)


@pytest.mark.parametrize("state", [PLUGIN, GFD], ids=lambda state: state.name)
def test_an_edit_of_the_configurations_is_a_new_pod(state: StackState) -> None:
    def digest(**data: str) -> str:
        made = daemonset(state, render_input(config_maps={"sharing": data}, **SHARING))
        return str(made.template["metadata"]["annotations"][CONFIG_DIGEST])

    assert digest(whole="a") == digest(whole="a")
    assert len({digest(whole="a"), digest(whole="b"), digest(half="a"), digest()}) == 4


def test_an_edit_of_the_configurations_leaves_the_mps_daemon_alone() -> None:
    """Programs that share a card would end with it."""

    def template(**data: str) -> object:
        return daemonset(MPS, render_input(config_maps={"sharing": data}, **SHARING)).template

    assert template(whole="a") == template(whole="b") == template()


@all_three
def test_an_edit_of_other_config_maps_is_not(state: StackState) -> None:
    def template(**other: str) -> object:
        return daemonset(state, render_input(config_maps={"sharing": {}, "other": other}, **SHARING)).template

    assert template(x="1") == template(x="2")


def test_config_managers_of_feature_discovery_are_pulled_as_the_plugin_is() -> None:
    plugin = {"imagePullSecrets": ["plugin"], "imagePullPolicy": "Always", "config": {"name": "sharing"}}
    made = daemonset(GFD, render_input(devicePlugin=plugin, gfd={"imagePullSecrets": ["gfd"]}))
    assert made.pod["imagePullSecrets"] == [{"name": "gfd"}, {"name": "plugin"}]
    assert made.container("config-manager").manifest["imagePullPolicy"] == "Always"
    assert made.main.manifest["imagePullPolicy"] == "IfNotPresent"


@all_three
def test_the_account_of_the_pods_is_there(state: StackState) -> None:
    scene = render_input()
    account = daemonset(state, scene).pod["serviceAccountName"]
    accounts = {held["metadata"]["name"] for each in (PLUGIN, GFD) for held in of_kind(each, scene, "ServiceAccount")}
    assert account in accounts
