"""The vGPU manager: a driver, so an image for each operating system and no rolling update."""

from typing import Any

import pytest

from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST
from gpu_control_plane.operator.stack.driver.openshift import TOOLKIT
from gpu_control_plane.operator.stack.operands.vgpu_manager import STATE
from gpu_control_plane.operator.stack.render import render_state
from unit.operator.stack.sandbox_builders import (
    RHEL,
    UBUNTU,
    VGPU_IMAGE,
    daemonset,
    daemonsets,
    mounts,
    policy,
    render_input,
)

MAIN = "nvidia-vgpu-manager-ctr"


def _policy(**section: Any) -> Any:
    return policy(vgpuManager={**VGPU_IMAGE, **section})


def test_each_operating_system_has_its_image_and_its_nodes() -> None:
    made = {
        found.main.manifest["image"].partition("-manager:")[2]: found
        for found in daemonsets(STATE, render_input(_policy(), UBUNTU, RHEL))
    }
    assert set(made) == {"580.1-ubuntu24.04", "580.1-rhel9"}
    assert made["580.1-rhel9"].pod["nodeSelector"] == {
        "nvidia.com/gpu.deploy.vgpu-manager": "true",
        NodeLabel.OS_ID: "rhel",
        NodeLabel.OS_MAJOR: "9",
    }
    assert made["580.1-ubuntu24.04"].pod["nodeSelector"][NodeLabel.OS_VERSION] == "24.04"


def test_a_digest_is_the_same_for_every_system() -> None:
    scene = render_input(_policy(version="sha256:abc"))
    assert daemonset(STATE, scene).main.manifest["image"] == "registry.example/vgpu/vgpu-manager@sha256:abc"


def test_nodes_that_do_not_say_their_system_are_a_problem_in_a_sentence() -> None:
    rendered = render_state(STATE, render_input(_policy(), NodeKind()))
    assert str(NodeLabel.OS_ID) in rendered.problem


def test_without_an_image_it_says_what_to_set() -> None:
    rendered = render_state(STATE, render_input(policy(vgpuManager={"enabled": True, "image": ""})))
    assert "VGPU_MANAGER_IMAGE" in rendered.problem


@pytest.mark.parametrize("common", [{"rollingUpdate": {"maxUnavailable": "3"}}, {"updateStrategy": "RollingUpdate"}])
def test_pods_are_replaced_only_when_they_are_deleted(common: dict[str, Any]) -> None:
    made = daemonset(STATE, render_input(policy(vgpuManager=VGPU_IMAGE, daemonsets=common)))
    assert made.manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_the_pod_is_as_close_to_the_host_as_a_driver_needs() -> None:
    made = daemonset(STATE, render_input(_policy()))
    assert made.pod["hostPID"] is True
    assert made.pod["hostIPC"] is True
    assert made.pod["terminationGracePeriodSeconds"] == 120
    assert made.main.manifest["securityContext"]["seLinuxOptions"] == {"level": "s0"}
    assert mounts(made, MAIN) == {
        "/run/nvidia": "/run/nvidia",
        "/var/log": "/var/log",
        "/dev/log": "/dev/log",
        "/host-etc/os-release": "/etc/os-release",
        "/dev/vfio": "/dev/vfio",
        "/sys/fs/cgroup": "/sys/fs/cgroup",
        "/sys/module/firmware_class/parameters/path": "/sys/module/firmware_class/parameters/path",
        "/lib/firmware": "/run/nvidia/driver/lib/firmware",
    }


def test_the_node_is_cleared_without_evicting_pods() -> None:
    manager = daemonset(STATE, render_input(_policy())).container("k8s-driver-manager")
    assert manager.manifest["args"] == ["uninstall_driver"]
    assert manager.env("ENABLE_GPU_POD_EVICTION") == "false"
    assert manager.env("ENABLE_AUTO_DRAIN") == "false"


def test_parameters_of_kernel_modules_are_mounted_file_by_file() -> None:
    scene = render_input(
        _policy(kernelModuleConfig={"name": "kernel.parameters"}),
        config_maps={"kernel.parameters": {"nvidia.conf": "a", "nvidia-vgpu-vfio.conf": "b"}},
    )
    made = daemonset(STATE, scene)
    extra = [mount for mount in made.main.manifest["volumeMounts"] if mount["mountPath"].startswith("/drivers/")]
    assert [(mount["mountPath"], mount["subPath"], mount["readOnly"]) for mount in extra] == [
        ("/drivers/nvidia-vgpu-vfio.conf", "nvidia-vgpu-vfio.conf", True),
        ("/drivers/nvidia.conf", "nvidia.conf", True),
    ]
    (name,) = {mount["name"] for mount in extra}
    assert "." not in name
    assert made.volume(name)["configMap"]["name"] == "kernel.parameters"


def test_an_edit_of_those_parameters_is_another_pod() -> None:
    spec = _policy(kernelModuleConfig={"name": "parameters"})
    digests = {
        daemonset(STATE, render_input(spec, config_maps={"parameters": {"nvidia.conf": text}})).template["metadata"][
            "annotations"
        ][CONFIG_DIGEST]
        for text in ("a", "b", "a")
    }
    assert len(digests) == 2


def test_parameters_that_are_not_there_are_a_problem_that_names_the_config_map() -> None:
    rendered = render_state(STATE, render_input(_policy(kernelModuleConfig={"name": "nowhere"})))
    assert "ConfigMap nowhere" in rendered.problem


def test_openshifts_version_is_in_the_environment_of_the_driver() -> None:
    made = daemonset(STATE, render_input(_policy(), openshift=OpenShift(version="4.20")))
    assert made.main.env("OPENSHIFT_VERSION") == "4.20"
    assert daemonset(STATE, render_input(_policy())).main.env("OPENSHIFT_VERSION") is None


def test_the_stock_image_which_names_no_registry_is_refused() -> None:
    rendered = render_state(STATE, render_input(policy(vgpuManager={"enabled": True})))
    assert "vgpu-manager has no version" in rendered.problem


def test_openshift_builds_it_in_the_toolkit_of_each_release() -> None:
    kinds = [NodeKind(system=OperatingSystem("rhcos", "4.20"), ostree=release) for release in ("9.6.1", "9.6.2")]
    openshift = OpenShift(version="4.20", proxy_ca=True, toolkit_images={"9.6.1": "registry.example/dtk:1"})
    spec = policy(vgpuManager=VGPU_IMAGE, operator={"use_ocp_driver_toolkit": True})
    made = {found.name: found for found in daemonsets(STATE, render_input(spec, *kinds, openshift=openshift))}
    assert set(made) == {"nvidia-vgpu-manager-daemonset-9.6.1", "nvidia-vgpu-manager-daemonset-9.6.2"}
    for name, found in made.items():
        assert found.pod["nodeSelector"][NodeLabel.OSTREE] == name.rpartition("-")[2]
        assert found.manifest["spec"]["selector"]["matchLabels"] == {"app": name}
        assert found.template["metadata"]["labels"]["app"] == name
        assert found.main.manifest["command"] == ["ocp_dtk_entrypoint"]
        assert not found.has_volume("gpu-operator-trusted-ca")
    assert made["nvidia-vgpu-manager-daemonset-9.6.1"].container(TOOLKIT).manifest["image"] == "registry.example/dtk:1"
    assert made["nvidia-vgpu-manager-daemonset-9.6.2"].container(TOOLKIT).env("RHCOS_IMAGE_MISSING") == "true"


def test_elsewhere_nothing_of_the_toolkit_is_left() -> None:
    made = daemonset(STATE, render_input(_policy()))
    assert not made.has(TOOLKIT)
    assert not made.has_volume("shared-nvidia-driver-toolkit")
    assert made.main.manifest["args"] == ["init"]


def test_drivers_stay_loaded_when_nvidiadrivers_take_over() -> None:
    spec = policy(vgpuManager=VGPU_IMAGE, driver={"useNvidiaDriverCRD": True})
    assert not STATE.enabled(spec)
    assert STATE.orphan(spec)
    assert not STATE.orphan(_policy())
