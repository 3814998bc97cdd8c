"""What the labels and the status of a Node say of it."""

import pytest

from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia.names import DEPLOY, PCI_LABELS, NodeLabel
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.node_facts import (
    ContainerRuntime,
    NodeKind,
    OperatingSystem,
    container_runtime,
    has_card,
    is_gpu_node,
    node_kind,
    without_pause,
)


def _node(labels: dict[str, str] | None = None, runtime: str = "") -> Node:
    return Node(
        metadata=ObjectMeta(name="a", labels=labels or {}),
        status=NodeStatus(node_info=NodeInfo(container_runtime_version=runtime)),
    )


@pytest.mark.parametrize(
    ("os_id", "version", "tag"),
    [
        ("rhel", "9.4", "rhel9"),
        ("rhel", "10", "rhel10"),
        ("rocky", "8.10", "rocky8"),
        ("ol", "9.5", "ol9"),
        ("ubuntu", "24.04", "ubuntu24.04"),
        ("sles", "15-SP6", "sles15-SP6"),
        ("talos", "v1.12.6", "talosv1.12.6"),
        ("rhcos", "4.20", "rhcos4.20"),
        ("debian", "12", "debian12"),
        ("centos", "7.9", "centos7.9"),
    ],
)
def test_images_for_a_system_are_called_by_its_tag(os_id: str, version: str, tag: str) -> None:
    assert OperatingSystem(os_id, version).tag == tag


@pytest.mark.parametrize(
    ("system", "selector"),
    [
        (OperatingSystem("ubuntu", "24.04"), {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "24.04"}),
        (OperatingSystem("rhel", "9.4"), {NodeLabel.OS_ID: "rhel", NodeLabel.OS_MAJOR: "9"}),
        (OperatingSystem("sles", "15-SP6"), {NodeLabel.OS_ID: "sles", NodeLabel.OS_VERSION: "15-SP6"}),
    ],
)
def test_nodes_of_a_system_are_found_by_what_its_tag_is_made_of(
    system: OperatingSystem, selector: dict[str, str]
) -> None:
    assert system.selector == selector


@pytest.mark.parametrize(
    ("word", "runtime"),
    [
        ("containerd://2.1.4", ContainerRuntime.CONTAINERD),
        ("cri-o://1.36.0", ContainerRuntime.CRIO),
        ("docker://28.0.1", ContainerRuntime.DOCKER),
        ("", ContainerRuntime.CONTAINERD),
        ("rkt://1", ContainerRuntime.CONTAINERD),
        ("cri-o", ContainerRuntime.CRIO),
    ],
)
def test_the_kubelet_reports_the_container_runtime(word: str, runtime: ContainerRuntime) -> None:
    assert container_runtime(_node(runtime=word)) is runtime


def test_a_kind_is_read_from_labels_and_status() -> None:
    labels: dict[str, str] = {
        NodeLabel.OS_ID: "rhcos",
        NodeLabel.OS_VERSION: "4.20",
        NodeLabel.KERNEL: "5.14.0-570.el9_6.x86_64",
        NodeLabel.OSTREE: "9.6.20260101-0",
        f"{DEPLOY}driver": "true",
        f"{DEPLOY}operator-validator": "agent",
    }
    assert node_kind(_node(labels, "cri-o://1.36.0")) == NodeKind(
        system=OperatingSystem("rhcos", "4.20"),
        kernel="5.14.0-570.el9_6.x86_64",
        runtime=ContainerRuntime.CRIO,
        ostree="9.6.20260101-0",
        driver=True,
        vgpu=False,
        agent=True,
    )


@pytest.mark.parametrize(
    ("value", "before"),
    [
        ("true", "true"),
        ("false", "false"),
        ("agent", "agent"),
        ("", ""),
        ("paused-for-driver-upgrade", "true"),
        ("paused-for-mig-change", "true"),
        ("agent_paused-for-driver-upgrade", "agent"),
        ("pre-installed_paused-for-driver-upgrade", "pre-installed"),
    ],
)
def test_the_value_before_a_pause_is_known(value: str, before: str) -> None:
    assert without_pause(value) == before


@pytest.mark.parametrize(
    ("value", "driver"),
    [("true", True), ("paused-for-driver-upgrade", True), ("pre-installed", False), ("false", False), (None, False)],
)
def test_a_driver_goes_to_nodes_whose_deploy_label_says_so(value: str | None, driver: bool) -> None:
    of_containers, of_machines = (
        node_kind(_node({} if value is None else {f"{DEPLOY}{name}": value})) for name in ("driver", "vgpu-manager")
    )
    assert (of_containers.driver, of_containers.vgpu) == (driver, False)
    assert (of_machines.driver, of_machines.vgpu) == (False, driver)


@pytest.mark.parametrize(
    ("value", "agent"),
    [("agent", True), ("agent_paused-for-driver-upgrade", True), ("true", False), ("false", False), ("", False)],
)
def test_nodes_of_the_agent_are_known_by_the_label_of_their_validator(value: str, agent: bool) -> None:
    assert node_kind(_node({f"{DEPLOY}operator-validator": value})).agent is agent


@pytest.mark.parametrize("labels", [{}, {NodeLabel.OS_ID: "ubuntu"}, {NodeLabel.OS_VERSION: "24.04"}])
def test_an_incomplete_system_is_none(labels: dict[str, str]) -> None:
    assert node_kind(_node(labels)).system is None


@pytest.mark.parametrize("label", PCI_LABELS)
def test_each_way_of_naming_a_card_counts(label: str) -> None:
    assert has_card({label: "true"})
    assert not has_card({label: "false"})


def test_our_own_discovery_is_believed_as_well() -> None:
    assert has_card({"gpu.deckhouse.io/gpu.present": "true"})


def test_other_labels_are_no_card() -> None:
    assert not has_card({})
    assert not has_card({"feature.node.kubernetes.io/pci-1002.present": "true"})


@pytest.mark.parametrize(("value", "present"), [("true", True), ("false", False), ("", False), (None, False)])
def test_a_gpu_node_is_one_with_our_label(value: str | None, present: bool) -> None:
    assert is_gpu_node({} if value is None else {NodeLabel.PRESENT: value}) is present
