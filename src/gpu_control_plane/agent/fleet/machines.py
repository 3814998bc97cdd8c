"""Simulated GPU nodes in a cluster: made, found, and changed by guarded writes of their hardware document."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.agent.simulated.machine import (
    HARDWARE,
    SIMULATED,
    SIMULATED_VALUE,
    Machine,
    SimulationError,
    boot_id,
    card_ids,
    read_machine,
    write_machine,
)
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api.identity import canonical_pci_address
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, NotFound
from gpu_control_plane.kube.gather_all import gather_all

_CAPACITY: Final = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "7Ti", "pods": "250"}
_ATTEMPTS: Final = 10
_AT_ONCE: Final = 16
_SEEN_BY_NFD: Final = "feature.node.kubernetes.io/pci-10de.present"

type Edit = Callable[[Machine], Machine]


class SimulatedNode(msgspec.Struct, frozen=True):
    """A simulated node and its hardware."""

    name: str
    machine: Machine


class AddedNodes(msgspec.Struct):
    """What became of nodes that were to be added."""

    created: list[str] = []
    equipped: list[str] = []
    """They existed without hardware that can be read, and have got theirs."""
    kept: list[str] = []
    """They existed with this hardware, whatever has happened to it."""
    different: dict[str, str] = {}
    """They existed with other hardware, and have kept it."""

    @property
    def count(self) -> int:
        return sum(map(len, (self.created, self.equipped, self.kept, self.different)))


async def add_nodes(
    client: Client,
    names: Iterable[str],
    machine: Machine,
    *,
    labels: Mapping[str, str] = {},
    progress: Callable[[AddedNodes], None] = lambda _added: None,
) -> AddedNodes:
    """Make sure that these nodes exist, with this hardware and these labels if they are new."""
    added = AddedNodes()
    limit = asyncio.Semaphore(_AT_ONCE)

    async def add(name: str) -> None:
        async with limit:
            try:
                await client.create(NodeView, node_manifest(name, machine, labels))
            except AlreadyExists:
                await _equip(client, name, machine, added)
            else:
                added.created.append(name)
            progress(added)

    await gather_all(map(add, names))
    return added


async def _equip(client: Client, name: str, machine: Machine, added: AddedNodes) -> None:
    """Give a node that exists its hardware, unless it has some."""
    node = await client.get(NodeView, name)
    try:
        held = read_machine(name, node.metadata.annotations)
    except SimulationError:
        held = None
    if held is None:
        await client.patch(NodeView, name, _equipment(machine))
        added.equipped.append(name)
    elif (held.profile, held.cards) == (machine.profile, machine.cards):
        added.kept.append(name)
    else:
        added.different[name] = f"{held.cards} x {held.profile}"


async def install_cards(client: Client, names: Iterable[str], machine: Machine) -> None:
    """Put this hardware into nodes that exist and have none yet, such as real nodes with pretended cards."""
    for name in names:
        node = await client.get(NodeView, name)
        if read_machine(name, node.metadata.annotations) is None:
            await client.patch(NodeView, name, _equipment(machine))


def _equipment(machine: Machine) -> dict[str, object]:
    """What a Node gets with its cards: those, and the label by which others know of them."""
    return {"metadata": {"annotations": {HARDWARE: write_machine(machine)}, "labels": {_SEEN_BY_NFD: "true"}}}


def node_manifest(name: str, machine: Machine, labels: Mapping[str, str] = {}) -> dict[str, object]:
    """The Node as its kubelet would register it, labelled as Node Feature Discovery would."""
    return {
        "metadata": {
            "name": name,
            "annotations": {SIMULATED: SIMULATED_VALUE, HARDWARE: write_machine(machine)},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/simulated": "",
                _SEEN_BY_NFD: "true",
                **labels,
            },
        },
        "status": {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": boot_id(name, machine),
                "containerRuntimeVersion": "containerd://2.4.2",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": "simulated",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": "",
            },
        },
    }


async def list_machines(client: Client) -> tuple[list[SimulatedNode], list[SimulationError]]:
    """Every simulated node that has cards, by name; and why the hardware of others cannot be read."""
    found, unreadable = [], []
    for node in sorted(await client.list(NodeView), key=lambda node: node.name):
        try:
            machine = read_machine(node.name, node.metadata.annotations)
        except SimulationError as error:
            unreadable.append(error)
        else:
            found += [SimulatedNode(node.name, machine)] if machine is not None else []
    return found, unreadable


async def edit_card(client: Client, device: str, edit: Callable[[Machine, str], Machine]) -> str:
    """Change the hardware at one card, named as its GPUDevice or as NODE/ADDRESS; returns the node's name."""
    node, address = await _find(client, device)
    await edit_node(client, node, lambda machine: edit(machine, address))
    return node


async def edit_node(client: Client, name: str, edit: Edit) -> None:
    """Change the hardware of a node, on top of whatever it is by now."""
    for attempt in range(_ATTEMPTS):
        try:
            node = await client.get(NodeView, name)
        except NotFound:
            raise SimulationError(
                f"There is no node {name}. `kubectl gpu simulate list` shows those there are."
            ) from None
        machine = read_machine(name, node.metadata.annotations)
        if machine is None:
            raise SimulationError(
                f"Node {name} has no simulated cards. `kubectl gpu simulate list` shows the nodes that have."
            )
        changed = edit(machine)
        if changed == machine:
            return
        body = {"metadata": {"annotations": {HARDWARE: write_machine(changed)}}}
        try:
            await client.patch(NodeView, name, body, resource_version=node.metadata.resource_version)
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return


async def _find(client: Client, device: str) -> tuple[str, str]:
    """The node and address of a card."""
    machines, _ = await list_machines(client)
    node, slash, place = device.partition("/")
    if slash:
        try:
            address = canonical_pci_address(place)
        except ValueError as error:
            raise SimulationError(f"{error}.") from None
        for each in machines:
            if each.name == node and address in each.machine.addresses:
                return node, address
    for each in machines:
        ids = card_ids(each.name, each.machine)
        if device in ids:
            return each.name, ids[device]
    raise SimulationError(
        f"No simulated node has a card {device}. `kubectl gpu simulate list --cards` shows those there are."
    )
