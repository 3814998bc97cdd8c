"""What the operands for virtual machines have in common: gate, image, resources, and what people may change."""

import pytest

from gpu_control_plane.operator.stack.operands import (
    cc_manager,
    kata_device_plugin,
    sandbox_device_plugin,
    vfio_manager,
    vgpu_manager,
)
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.states import StackState
from unit.operator.stack.sandbox_builders import ROWS, VGPU_IMAGE, Row, daemonset, mounts, policy, render_input

VALIDATIONS = "/run/nvidia/validations"


each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@each
def test_stock_values_give_the_known_name_gate_and_image(row: Row) -> None:
    made = row.made()
    assert made.name == row.name
    assert made.pod["nodeSelector"][f"nvidia.com/gpu.deploy.{row.gate}"] == "true"
    assert made.main.manifest["image"] == row.image
    assert made.pod["priorityClassName"] == "system-node-critical"
    assert "runtimeClassName" not in made.pod


@each
def test_every_container_is_privileged(row: Row) -> None:
    assert all(held.manifest["securityContext"]["privileged"] for held in row.made().containers())


@each
def test_the_selector_matches_the_pods(row: Row) -> None:
    made = row.made()
    labels = made.template["metadata"]["labels"]
    assert made.manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()


@each
def test_labels_for_all_daemonsets_do_not_break_the_selector(row: Row) -> None:
    key = next(iter(row.made().manifest["spec"]["selector"]["matchLabels"]))
    scene = row.render_input()
    held = policy(
        row.mode,
        **{row.section: VGPU_IMAGE} if row.section == "vgpuManager" else {},
        daemonsets={"labels": {key: "x", "team": "ml"}},
    )
    made = daemonset(row.state, render_input(held))
    assert made.template["metadata"]["labels"][key] == daemonset(row.state, scene).template["metadata"]["labels"][key]
    assert made.template["metadata"]["labels"]["team"] == "ml"


@each
def test_what_the_section_says_reaches_the_main_container(row: Row) -> None:
    made = row.made(
        imagePullPolicy="Always",
        imagePullSecrets=["registry"],
        resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "2"}},
        args=["--loud"],
        env=[{"name": "NODE_NAME", "value": "mine"}, {"name": "EXTRA", "value": "1"}],
        hostNetwork=True,
    )
    main = made.main.manifest
    assert main["imagePullPolicy"] == "Always"
    assert made.pod["imagePullSecrets"][0] == {"name": "registry"}
    assert main["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": "2"}}
    assert main["args"] == ["--loud"]
    assert made.main.env("NODE_NAME") == "mine"
    assert made.main.env("EXTRA") == "1"
    assert made.pod["hostNetwork"] is True
    assert made.pod["dnsPolicy"] == "ClusterFirstWithHostNet"


@each
def test_the_operators_environment_names_an_image_that_the_policy_does_not(row: Row) -> None:
    nothing = {"repository": "", "image": "", "version": "", "enabled": True}
    scene = render_input(
        policy(row.mode, **{row.section: nothing}), images={row.variable: "registry.example/named@sha256:1"}
    )
    assert daemonset(row.state, scene).main.manifest["image"] == "registry.example/named@sha256:1"


@each
def test_half_an_image_is_a_problem_that_names_what_is_missing(row: Row) -> None:
    scene = render_input(
        policy(row.mode, **{row.section: {"repository": "", "image": "x", "version": "1", "enabled": True}})
    )
    rendered = render_state(row.state, scene)
    assert "repository" in rendered.problem
    assert not rendered.manifests


@each
def test_containers_that_validate_run_the_validators_image_as_root(row: Row) -> None:
    for held in row.made().containers():
        if held.name.endswith("-validation"):
            assert held.manifest["image"] == "nvcr.io/nvidia/gpu-operator:v26.7.0"
            assert held.manifest["securityContext"]["runAsUser"] == 0


@each
def test_every_mount_has_its_volume_and_every_volume_is_mounted(row: Row) -> None:
    made = row.made()
    mounted = {mount["name"] for held in made.containers() for mount in held.manifest.get("volumeMounts", ())}
    assert mounted == {volume["name"] for volume in made.pod["volumes"]}


def test_a_root_of_the_host_elsewhere_moves_what_is_mounted_but_not_where_the_vfio_manager_sees_it() -> None:
    made = daemonset(vfio_manager.STATE, render_input(policy(hostPaths={"rootFS": "/sysroot"})))
    assert mounts(made, "nvidia-vfio-manager")["/host"] == "/sysroot"
    assert made.main.env("HOST_ROOT") == "/host"
    assert made.container("k8s-driver-manager").env("HOST_ROOT") == "/sysroot"


HOST_FOLDERS = [
    (vfio_manager.STATE, "kubevirt", "nvidia-vfio-manager", {"/sys", "/lib/modules", "/host"}),
    (vfio_manager.STATE, "kubevirt", "k8s-driver-manager", {"/run/nvidia", "/host", "/sys"}),
    (
        sandbox_device_plugin.STATE,
        "kubevirt",
        "nvidia-sandbox-device-plugin-ctr",
        {"/var/lib/kubelet/device-plugins", "/dev/vfio", "/var/run/cdi"},
    ),
    (
        kata_device_plugin.STATE,
        "kata",
        "nvidia-kata-sandbox-device-plugin-ctr",
        {"/var/lib/kubelet/device-plugins", "/var/run/cdi"},
    ),
    (cc_manager.STATE, "kata", "nvidia-cc-manager", {"/sys", "/run/nvidia"}),
]


@pytest.mark.parametrize(("state", "mode", "container", "paths"), HOST_FOLDERS)
def test_an_operand_sees_the_folders_of_the_host_that_it_works_on(
    state: StackState, mode: str, container: str, paths: set[str]
) -> None:
    assert set(mounts(daemonset(state, render_input(policy(mode))), container)) == paths


def test_the_vfio_manager_binds_cards_and_lets_go_of_them() -> None:
    main = daemonset(vfio_manager.STATE, render_input()).main.manifest
    assert main["args"][0].startswith("vfio-manage bind --all &&")
    assert main["lifecycle"]["preStop"]["exec"]["command"] == ["vfio-manage", "unbind", "--all"]
    assert main["resources"]["requests"] == {"cpu": "100m", "memory": "200Mi"}


@pytest.mark.parametrize("section", ["vfioManager", "vgpuManager"])
def test_the_driver_manager_follows_its_own_section(section: str) -> None:
    manager = {
        "repository": "registry.example",
        "image": "manager",
        "version": "sha256:1",
        "imagePullPolicy": "Never",
        "imagePullSecrets": ["other"],
        "env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}],
    }
    held = VGPU_IMAGE if section == "vgpuManager" else {}
    values = {**held, "driverManager": manager, "resources": {"limits": {"cpu": "1"}}}
    state = vgpu_manager.STATE if section == "vgpuManager" else vfio_manager.STATE
    made = daemonset(state, render_input(policy(**{section: values})))
    container = made.container("k8s-driver-manager")
    assert container.manifest["image"] == "registry.example/manager@sha256:1"
    assert container.manifest["imagePullPolicy"] == "Never"
    assert container.manifest["resources"] == {"limits": {"cpu": "1"}}
    assert container.manifest["args"] == ["uninstall_driver"]
    assert {"name": "other"} in made.pod["imagePullSecrets"]
    assert container.env("ENABLE_AUTO_DRAIN") == "true"
    assert container.env("ENABLE_GPU_POD_EVICTION") == "false"


@pytest.mark.parametrize(("mode", "word"), [("on", "on"), ("devtools", "devtools"), (None, None)])
def test_the_cc_manager_gets_the_mode_for_nodes_without_a_label(mode: str | None, word: str | None) -> None:
    made = daemonset(cc_manager.STATE, render_input(policy("kata", ccManager={"defaultMode": mode})))
    assert made.main.env("DEFAULT_CC_MODE") == word


def test_what_people_write_for_the_cc_manager_wins() -> None:
    env = [{"name": "DEFAULT_CC_MODE", "value": "off"}]
    made = daemonset(cc_manager.STATE, render_input(policy("kata", ccManager={"defaultMode": "on", "env": env})))
    assert made.main.env("DEFAULT_CC_MODE") == "off"


def test_the_cc_manager_takes_its_ready_file_along() -> None:
    main = daemonset(cc_manager.STATE, render_input(policy("kata"))).main.manifest
    assert main["lifecycle"]["preStop"]["exec"]["command"][-1] == f"{VALIDATIONS}/.cc-manager-ctr-ready"
