"""What the rule says of kernel, driver and operating system, and that labels follow when something changes."""

import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFacts, feature_name, node_feature
from helm.chart import Helm
from helm.nfd.discovery import FEATURES, RULES, Discovery
from helm.nfd.machines import RTX_4090, T4, Machine, System, labels_for, ours
from helm.nfd.rule import shipped

TWO = Machine("two", (RTX_4090, T4), (RTX_4090, T4), System("rocky", "9.5"))
NONE = msgspec.structs.replace(TWO, name="none", functions=(), cards=())


VERSION = {"full": "6.8.0-60-generic", "major": "6", "minor": "8", "revision": "0"}
LOADED: dict[str, tuple[tuple[str, ...], str | None]] = {
    "all-of-it": (("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm"), "nvidia"),
    "with-storage": (("nvidia", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "gdrdrv"), "nvidia"),
    "nouveau": (("nouveau",), "nouveau"),
    "both": (("nouveau", "nvidia"), "nvidia"),
    "passed-on": (("vfio_pci",), None),
    "no-driver": ((), None),
}
"""Modules that are loaded, by node, and the driver version in the labels."""


@pytest.fixture(scope="module")
def labels_of_nodes(discovery: Discovery, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str]]:
    """Labels of nodes with these modules and a few that do not matter."""
    files = TWO.build(tmp_path_factory.mktemp("two"))
    for node, (modules, _driver) in LOADED.items():
        loaded: dict[str, object] = {name: {} for name in (*modules, "overlay", "nvidiafb", "drm")}
        features = {
            "flags": {"kernel.loadedmodule": {"elements": loaded}},
            "attributes": {"kernel.version": {"elements": VERSION}},
            "instances": {},
        }
        discovery.add_node(node)
        discovery.add_feature(node, features)
        discovery.look(node, files)
    return discovery.await_nodes(LOADED)


@pytest.mark.parametrize("node", LOADED)
def test_loaded_modules_and_the_kernel_have_labels(labels_of_nodes: Mapping[str, Mapping[str, str]], node: str) -> None:
    modules, driver = LOADED[node]
    expected = labels_for(TWO) | {f"driver.module.{name}": "true" for name in modules}
    expected |= {f"kernel.version.{part}": VERSION[part] for part in ("full", "major", "minor")}
    expected |= {"driver.name": driver} if driver else {}
    assert ours(labels_of_nodes[node]) == expected


@pytest.mark.parametrize("machine", [TWO, NONE], ids=lambda machine: machine.name)
def test_the_kernel_has_a_label_where_there_are_cards(discovery: Discovery, tmp_path: Path, machine: Machine) -> None:
    """The kernel of the machine that runs this test: the worker asks /proc for it, wherever the other files are."""
    node = f"this-kernel-{machine.name}"
    discovery.add_node(node)
    discovery.look(node, machine.build(tmp_path), sources="pci,system,kernel")
    labels = ours(discovery.await_nodes([node])[node])
    expected = dict(zip(("major", "minor"), platform.release().split("."), strict=False)) if machine.cards else {}
    assert {part: labels.get(f"kernel.version.{part}") for part in expected} == expected
    assert any(name.startswith("kernel.") for name in labels) is bool(machine.cards)


def test_a_pulled_card_loses_its_labels_and_the_last_one_all_labels(discovery: Discovery, tmp_path: Path) -> None:
    node = "pulled"
    discovery.add_node(node)
    for cards in ((RTX_4090, T4), (T4,), (), (T4,)):
        machine = msgspec.structs.replace(TWO, functions=cards, cards=cards)
        discovery.look(node, machine.build(tmp_path))
        discovery.await_labels(node, labels_for(machine))


def test_what_agents_publish_fits_nfd_and_changes_nothing(discovery: Discovery, tmp_path: Path) -> None:
    node = "with-agent"
    discovery.add_node(node)
    spec = node_feature(node, NodeFacts(bus_cards=2), tuple(h200(node, index, 2) for index in range(2)))
    feature = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": feature_name(node), "labels": {NODE_LABEL: node}},
        "spec": msgspec.to_builtins(spec),
    }
    discovery.cluster.request("POST", f"{FEATURES}?fieldValidation=Strict", feature)
    discovery.look(node, TWO.build(tmp_path))
    assert ours(discovery.await_nodes([node])[node]) == labels_for(TWO)


def test_without_the_rule_its_labels_go(discovery: Discovery, helm: Helm, tmp_path: Path) -> None:
    node = "without-rule"
    discovery.add_node(node)
    discovery.look(node, TWO.build(tmp_path))
    discovery.await_labels(node, labels_for(TWO))
    rule = shipped(helm)
    discovery.cluster.request("DELETE", f"{RULES}/{rule['metadata']['name']}")
    try:
        discovery.await_labels(node, {})
        assert discovery.labels(node)["feature.node.kubernetes.io/pci-0302_10de.present"] == "true"
    finally:
        discovery.cluster.request("POST", RULES, rule)
        discovery.await_labels(node, labels_for(TWO))
