"""Exactly the nodes with cards are recognised, by the real Node Feature Discovery on a table of real PCI ids.

NFD's worker reads the files of each machine, twice: as it comes, and with the settings of NVIDIA's chart. Its master
applies the rule that our chart ships. The same files are read by our own discovery, so the two cannot drift apart.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.vendors.registry import pci_vendors
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator import node_facts
from helm.chart import Helm, Manifest
from helm.nfd.discovery import NVIDIAS, STOCK, Discovery, Options
from helm.nfd.machines import MACHINES, OLD_BOARD, Machine, labels_for, ours

OWN_FIELDS: Final = {"deviceClassWhitelist": ["0302"], "deviceLabelFields": ["class", "vendor", "device"]}
"""Settings of a cluster in which NFD's own labels are not those that the product looks for."""
SETTINGS: Final[Mapping[str, Options]] = {"stock": STOCK, "nvidia": NVIDIAS}
ODD: Final = "odd-settings"

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
every_setting = pytest.mark.parametrize("setting", SETTINGS)

type Labels = Mapping[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Where the files of each machine are."""
    folder = tmp_path_factory.mktemp("machines")
    return {machine.name: machine.build(folder / machine.name) for machine in (*MACHINES, OLD_BOARD)}


@pytest.fixture(scope="module")
def labelled(discovery: Discovery, files: Mapping[str, Path]) -> Mapping[str, Labels]:
    """The labels of a node for each machine and setting, when NFD has been at all of them."""
    looks = {
        _node(machine, setting): (files[machine.name], options)
        for machine in (*MACHINES, OLD_BOARD)
        for setting, options in SETTINGS.items()
    } | {ODD: (files["eight"], OWN_FIELDS)}

    def look(node: str) -> None:
        discovery.add_node(node)
        discovery.look(node, *looks[node])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(look, looks))
    return discovery.await_nodes(looks)


@every_setting
@every_machine
def test_a_node_is_labelled_with_what_its_machine_has(
    labelled: Mapping[str, Labels], machine: Machine, setting: str
) -> None:
    assert ours(labelled[_node(machine, setting)]) == labels_for(machine)


@every_setting
@every_machine
def test_the_stack_takes_exactly_nodes_with_cards_for_gpu_nodes(
    labelled: Mapping[str, Labels], machine: Machine, setting: str
) -> None:
    labels = labelled[_node(machine, setting)]
    assert node_facts.has_card(labels) is bool(machine.cards)
    kind = node_facts.node_kind(Node(metadata=ObjectMeta(name=machine.name, labels=dict(labels))))
    assert kind.system == node_facts.OperatingSystem(machine.system.id, machine.system.version)


@every_machine
def test_our_own_discovery_sees_the_same_cards(files: Mapping[str, Path], machine: Machine) -> None:
    seen = Sysfs(sys=files[machine.name] / "host-sys").cards(pci_vendors())
    assert [(card.pci.vendor, card.pci.device, card.pci.class_) for card in seen] == [
        (card.vendor, card.device, card.class_) for card in machine.cards
    ]


def test_the_agent_goes_exactly_to_nodes_with_cards(helm: Helm, labelled: Mapping[str, Labels]) -> None:
    gate = _Gate(helm)
    machines = {_node(machine, setting): machine for machine in MACHINES for setting in SETTINGS}
    wrong = [node for node, machine in machines.items() if gate.lets(labelled[node]) is not bool(machine.cards)]
    assert wrong == []


def test_the_agent_finds_cards_however_nfd_names_them(helm: Helm, labelled: Mapping[str, Labels]) -> None:
    assert labelled[ODD]["feature.node.kubernetes.io/pci-0302_10de_2330.present"] == "true"
    assert _Gate(helm).lets(labelled[ODD])


def test_an_old_network_chip_is_no_card_to_the_rule(files: Mapping[str, Path], labelled: Mapping[str, Labels]) -> None:
    """To NFD with the settings of NVIDIA's chart it looks like one, to NVIDIA's operator as to ours."""
    assert {setting: node_facts.has_card(labelled[_node(OLD_BOARD, setting)]) for setting in SETTINGS} == {
        "stock": False,
        "nvidia": True,
    }
    assert all(ours(labelled[_node(OLD_BOARD, setting)]) == {} for setting in SETTINGS)
    assert Sysfs(sys=files[OLD_BOARD.name] / "host-sys").cards(pci_vendors()) == ()


def _node(machine: Machine, setting: str) -> str:
    return f"{machine.name}-{setting}"


class _Gate:
    """The affinity of the agent's DaemonSet."""

    def __init__(self, helm: Helm) -> None:
        affinity = helm.objects().pod("agent")["spec"]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self._terms = [term["matchExpressions"] for term in terms]

    def lets(self, labels: Labels) -> bool:
        return any(all(self._holds(each, labels) for each in term) for term in self._terms)

    def _holds(self, expression: Manifest, labels: Labels) -> bool:
        within = labels.get(expression["key"]) in expression["values"]
        return {"In": within, "NotIn": not within}[expression["operator"]]
