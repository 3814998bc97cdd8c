"""What the operands for containers have in common: name, gate, image, what people may change, and who sees cards."""

from typing import Any

import pytest

from gpu_control_plane.operator.node_facts import ContainerRuntime
from gpu_control_plane.operator.stack.operands import container_toolkit, mps_control_daemon, operator_validation
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import RenderInput
from unit.operator.stack.container_builders import (
    CDI_OFF,
    CONTAINERD,
    CRIO,
    NRI,
    OPENSHIFT,
    ROWS,
    STATES,
    Row,
    daemonset,
    daemonsets,
    env,
    render_input,
)

VALIDATIONS = "/run/nvidia/validations"
RUNTIME = "gpu.deckhouse.io/container-runtime"

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
each_that_sees_cards = pytest.mark.parametrize("row", [row for row in ROWS if row.sees_cards], ids=lambda row: row.name)


@each
def test_stock_values_give_the_known_name_gate_and_image(row: Row) -> None:
    made = row.made()
    assert made.name == row.name
    assert made.pod["nodeSelector"][f"nvidia.com/gpu.deploy.{row.gate}"] == "true"
    assert made.main.name == row.main
    assert made.main.manifest["image"] == row.image
    assert made.manifest["spec"]["selector"]["matchLabels"]["app"] == row.name
    assert made.pod["priorityClassName"] == "system-node-critical"
    assert made.pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


@each
def test_the_selector_selects_the_pods_and_user_labels_cannot_break_it(row: Row) -> None:
    labels = {"app": "mine", "app.kubernetes.io/part-of": "mine", "team": "ml"}
    made = daemonset(row.state, render_input(daemonsets={"labels": labels}))
    pods = made.template["metadata"]["labels"]
    assert made.manifest["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert pods["team"] == "ml"


@each
def test_no_container_keeps_the_placeholder_of_its_image(row: Row) -> None:
    scene = render_input(devicePlugin={"config": {"name": "sharing"}})
    images = [held.manifest["image"] for held in daemonset(row.state, scene).containers()]
    assert all("/" in image and ":" in image for image in images)


@each
def test_every_mounted_volume_exists_and_every_volume_is_mounted(row: Row) -> None:
    made = row.made()
    mounted = {mount["name"] for held in made.containers() for mount in held.manifest.get("volumeMounts", ())}
    assert mounted == {volume["name"] for volume in made.pod["volumes"]}


@each
def test_containers_are_privileged(row: Row) -> None:
    for held in row.made().containers():
        assert held.manifest["securityContext"]["privileged"] is True


@each
def test_people_choose_image_policy_secrets_resources_and_network(row: Row) -> None:
    made = row.made(
        repository="registry.example/gpu",
        image="own",
        version="sha256:abc",
        imagePullPolicy="Always",
        imagePullSecrets=["registry"],
        resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}},
        hostNetwork=True,
    )
    assert made.main.manifest["image"] == "registry.example/gpu/own@sha256:abc"
    assert made.main.manifest["imagePullPolicy"] == "Always"
    assert made.main.manifest["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}
    assert {"name": "registry"} in made.pod["imagePullSecrets"]
    assert (made.pod["hostNetwork"], made.pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


@each
def test_stock_pods_stay_off_the_network_of_the_host(row: Row) -> None:
    assert "hostNetwork" not in row.made().pod


@each
def test_the_environment_of_people_wins(row: Row) -> None:
    given = {"NVIDIA_VISIBLE_DEVICES": "0", "EXTRA": "1"}
    made = row.made(env=[{"name": name, "value": value} for name, value in given.items()])
    # The section of the MPS daemon is the plugin's, and so is its environment.
    theirs = row.state is not mps_control_daemon.STATE
    assert (given.items() <= env(made).items()) is theirs


@each
def test_arguments_reach_the_program_that_knows_them(row: Row) -> None:
    args = row.made(args=["--loud"]).main.manifest.get("args")
    if row.state in {container_toolkit.STATE, mps_control_daemon.STATE}:
        assert args is None
    else:
        assert args == ["--loud"]


@each
def test_the_operators_environment_names_an_image_when_the_policy_does_not(row: Row) -> None:
    nothing = {"repository": "", "image": "", "version": ""}
    sections: dict[str, Any] = {row.section: nothing}
    scene = render_input(images={row.variable: "registry.example/x:1"}, **sections)
    assert daemonset(row.state, scene).main.manifest["image"] == "registry.example/x:1"


@each
def test_an_image_that_is_not_named_is_a_problem_with_a_sentence(row: Row) -> None:
    rendered = render_state(row.state, row.render_input(repository="", image="", version=""))
    assert not rendered.manifests
    assert row.variable in rendered.problem


@each
def test_an_operand_comes_and_goes_with_its_switch(row: Row) -> None:
    if row.state is operator_validation.STATE:
        assert render_state(row.state, row.render_input(enabled=False)).enabled
        return
    assert not render_state(row.state, row.render_input(enabled=False)).enabled
    assert render_state(row.state, row.render_input(enabled=None)).enabled is row.absent


@each
def test_containers_that_wait_run_the_validators_image_as_root(row: Row) -> None:
    for held in row.made().containers():
        if held.name.endswith("-validation"):
            assert held.manifest["image"] == "nvcr.io/nvidia/gpu-operator:v26.7.0"
            assert held.manifest["securityContext"]["runAsUser"] == 0


@each_that_sees_cards
def test_it_waits_for_the_toolkit_on_the_node(row: Row) -> None:
    steps = [held["name"] for held in row.made().pod["initContainers"]]
    assert "toolkit-validation" in steps


@each_that_sees_cards
@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (render_input(), "nvidia"),
        (render_input(operator={"runtimeClass": "cards"}), "cards"),
        (render_input(operator={"runtimeClass": ""}), "nvidia"),
        (render_input(CRIO), "nvidia"),
        (render_input(CONTAINERD, CRIO), "nvidia"),
        (render_input(**CDI_OFF), "nvidia"),
        (render_input(CRIO, **CDI_OFF), None),
        (render_input(openshift=OPENSHIFT, **CDI_OFF), None),
        (render_input(openshift=OPENSHIFT), "nvidia"),
        (render_input(**NRI), None),
    ],
)
def test_cards_are_seen_by_the_runtime_class(row: Row, scene: RenderInput, expected: str | None) -> None:
    made = daemonset(row.state, scene)
    assert made.pod.get("runtimeClassName") == expected


@each_that_sees_cards
def test_with_nri_an_annotation_gives_all_cards(row: Row) -> None:
    annotations = daemonset(row.state, render_input(**NRI)).template["metadata"]["annotations"]
    assert annotations[f"nvidia.cdi.k8s.io/container.{row.main}"] == "management.nvidia.com/gpu=all"
    assert "annotations" not in daemonset(row.state, render_input()).template["metadata"]


@each
def test_operands_that_need_no_card_are_given_none(row: Row) -> None:
    if not row.sees_cards:
        made = daemonset(row.state, render_input(**NRI))
        assert not any("cdi.k8s.io" in key for key in made.template["metadata"].get("annotations", {}))
        assert "runtimeClassName" not in row.made().pod


@each_that_sees_cards
def test_without_cdi_nodes_with_crio_have_pods_of_their_own_without_runtime_class(row: Row) -> None:
    mixed = render_input(CONTAINERD, CRIO, **CDI_OFF)
    by_runtime = {made.pod["nodeSelector"][RUNTIME]: made for made in daemonsets(row.state, mixed)}
    assert set(by_runtime) == {"containerd", "crio"}
    assert by_runtime["containerd"].pod["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in by_runtime["crio"].pod
    assert len({made.name for made in by_runtime.values()}) == 2
    assert row.name in {made.name for made in by_runtime.values()}


@each_that_sees_cards
def test_one_daemonset_suffices_wherever_all_pods_are_alike(row: Row) -> None:
    by_nri = render_input(CONTAINERD, CRIO, cdi={"enabled": False, "nriPluginEnabled": True})
    for scene in (render_input(CONTAINERD, CRIO), by_nri, render_input(CRIO, **CDI_OFF)):
        assert RUNTIME not in daemonset(row.state, scene).pod["nodeSelector"]


@each
def test_paths_of_the_host_can_be_elsewhere(row: Row) -> None:
    made = daemonset(row.state, render_input(hostPaths={"rootFS": "/sysroot", "driverInstallDir": "/opt/driver"}))
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in made.pod["volumes"] if "hostPath" in volume}
    assert paths.get("host-root", "/sysroot") == "/sysroot"
    assert paths.get("host-dev-char", "/sysroot/dev/char") == "/sysroot/dev/char"
    assert paths.get("driver-install-dir", "/opt/driver") == "/opt/driver"
    assert all(env(made, held.name)["HOST_ROOT"] == "/sysroot" for held in made.containers())


@each
def test_what_all_operands_have_in_common_applies(row: Row) -> None:
    wanted = {
        "updateStrategy": "OnDelete",
        "annotations": {"team": "ml"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "mine",
        "podSecurityContext": {"fsGroup": 1},
    }
    made = daemonset(row.state, render_input(daemonsets=wanted))
    assert made.manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made.template["metadata"]["annotations"]["team"] == "ml"
    assert made.pod["tolerations"] == [{"operator": "Exists"}]
    assert made.pod["priorityClassName"] == "mine"
    assert made.pod["securityContext"] == {"fsGroup": 1}


def test_rendering_twice_gives_the_same() -> None:
    scene = render_input(CONTAINERD, CRIO, openshift=OPENSHIFT, devicePlugin={"config": {"name": "sharing"}})
    for state in STATES:
        assert render_state(state, scene) == render_state(state, scene)


def test_every_runtime_of_a_mixed_fleet_has_a_toolkit_of_its_own() -> None:
    found = daemonsets(container_toolkit.STATE, render_input(CONTAINERD, CRIO))
    made = {held.pod["nodeSelector"][RUNTIME]: held for held in found}
    assert {word: env(held)["RUNTIME"] for word, held in made.items()} == {
        ContainerRuntime.CONTAINERD.value: "containerd",
        ContainerRuntime.CRIO.value: "crio",
    }
