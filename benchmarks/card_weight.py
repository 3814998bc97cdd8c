"""What one write of a card costs the API server in CPU time: this limits 40,000 cards.

It is measured against a write of a Node, and against the same facts in plain fields, each of which the API server keeps
account of: no atomic parts, and MIG placements as a list of objects. Both kinds of card are written as the product
writes them, by three field managers, each with its own part of the status.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from benchmarks.clusters import API_SERVER, cluster_of
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.agent.fleet.machines import node_manifest
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, gpudevice
from gpu_control_plane.api.examples import device, manifest
from gpu_control_plane.kube import Client, FieldManager, Object, Resource
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.discovery import serves
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.local import Component

_CARDS = 32
_ROUNDS = 12
_INVENTORY, _POOLS, _AGENT = FieldManager("gpu-inventory"), FieldManager("gpu-pools"), FieldManager("gpu-agent")
_WRITERS = {
    _INVENTORY: ("hardware",),
    _POOLS: ("state", "poolRef", "history"),
    _AGENT: ("usedBy", "telemetry", "conditions"),
}


class _Card(Object, frozen=True):
    """A GPUDevice of which nothing is read."""

    resource: ClassVar[Resource] = GPUDevice.resource


class _PlainCard(Object, frozen=True):
    """The same facts in plain fields."""

    resource: ClassVar[Resource] = Resource(
        "bench.gpu.deckhouse.io", "v1alpha1", "PlainCard", "plaincards", namespaced=False
    )


async def measure() -> list[Measurement]:
    async with cluster_of(API_SERVER) as (cluster, client):
        server = Path(f"/proc/{cluster.pid(Component.APISERVER)}/stat")
        cards = [manifest(device(node=f"node-{number:02}", index=0)) for number in range(_CARDS)]
        await _install_plain(client)
        for number, card in enumerate(cards):
            await client.create(NodeView, node_manifest(f"node-{number:02}", new_machine("H200-141", 8)))
            await _create(client, _Card, card)
            await _create(client, _PlainCard, _plain(card))
        progress(f"{_CARDS * _ROUNDS} writes of each kind")
        of_node = await _cost(server, lambda number, turn: _label(client, NodeView, f"node-{number:02}", turn))
        patch, report = await _costs(server, client, _Card, cards)
        plain_patch, plain_report = await _costs(server, client, _PlainCard, [_plain(card) for card in cards])
        raw = {
            "CPU ms, patch of a Node": of_node,
            "CPU ms, patch of a card": patch,
            "CPU ms, the agent's report on a card": report,
            "CPU ms, patch of a card in plain fields": plain_patch,
            "CPU ms, the agent's report on a card in plain fields": plain_report,
            "bytes": await _sizes(client, _Card, str(cards[0]["metadata"]["name"])),
            "bytes in plain fields": await _sizes(client, _PlainCard, str(cards[0]["metadata"]["name"])),
        }
    return [
        at_most(
            "CPU of the API server for a patch of a card, against plain fields", patch / plain_patch, "x", 0.5, **raw
        ),
        at_most("CPU for the agent's report on a card, against plain fields", report / plain_report, "x", 0.6),
        at_most("CPU for a patch of a card, against one of a Node", patch / of_node, "x", 2.2),
    ]


async def _costs(
    server: Path, client: Client, kind: type[_Card | _PlainCard], cards: list[dict[str, Any]]
) -> tuple[float, float]:
    names = [str(card["metadata"]["name"]) for card in cards]
    patch = await _cost(server, lambda number, turn: _label(client, kind, names[number], turn))
    report = await _cost(server, lambda number, turn: _report(client, kind, cards[number], turn))
    return patch, report


async def _create(client: Client, kind: type[_Card | _PlainCard], card: dict[str, Any]) -> None:
    name = str(card["metadata"]["name"])
    await client.apply(kind, name, {"spec": card["spec"]}, manager=_INVENTORY)
    for manager, fields in _WRITERS.items():
        status = {field: card["status"][field] for field in fields}
        await client.apply(kind, name, {"status": status}, manager=manager, subresource="status")


async def _label(client: Client, kind: type[Object], name: str, turn: int) -> None:
    await client.patch(kind, name, {"metadata": {"labels": {"bench": str(turn)}}})


async def _report(client: Client, kind: type[_Card | _PlainCard], card: dict[str, Any], turn: int) -> None:
    status = {field: card["status"][field] for field in _WRITERS[_AGENT]}
    body = {"status": {**status, "telemetry": {**status["telemetry"], "temperature": 30 + turn}}}
    await client.apply(kind, str(card["metadata"]["name"]), body, manager=_AGENT, subresource="status")


async def _cost(server: Path, write: Callable[[int, int], Awaitable[object]]) -> float:
    """CPU milliseconds of the API server for one write, in the median round."""
    await write(0, _ROUNDS)
    found = []
    for turn in range(_ROUNDS):
        before = _cpu_seconds(server)
        for number in range(_CARDS):
            await write(number, turn)
        found.append((_cpu_seconds(server) - before) / _CARDS * 1000)
    return sorted(found)[len(found) // 2]


def _cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _sizes(client: Client, kind: type[Object], name: str) -> dict[str, int]:
    path = kind.resource.path(None, name)
    answer = await client.transport.send(Call(method="GET", path=path, verb="get", resource=kind.resource.plural))
    managed = msgspec.json.decode(answer)["metadata"]["managedFields"]
    return {"object": len(answer), "its managedFields": len(msgspec.json.encode(managed))}


async def _install_plain(client: Client) -> None:
    """The CRD of cards, without what makes it light."""
    resource = _PlainCard.resource
    crd = gpudevice.DEFINITION.manifest()
    crd["metadata"] = {"name": resource.qualified_name}
    names = {"plural": resource.plural, "singular": "plaincard", "kind": resource.kind, "listKind": "PlainCardList"}
    crd["spec"] |= {"group": resource.group, "names": names}
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for part in status.values():
        part.pop("x-kubernetes-map-type", None)
    keys = ["namespace", "pod", "container", "resource"]
    status["usedBy"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    fields = {"name": "string", "count": "integer", "memoryMiB": "integer", "slices": "integer"}
    profile: dict[str, Any] = {field: {"type": kind} for field, kind in fields.items()}
    profile["starts"] = {"type": "array", "items": {"type": "integer"}}
    status["hardware"]["properties"]["mig"]["properties"]["placements"] = {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "properties": profile},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    await client.apply(CustomResourceDefinition, resource.qualified_name, crd, manager=_INVENTORY)
    while not await serves(client, resource):
        pass


def _plain(card: dict[str, Any]) -> dict[str, Any]:
    """The same card with its MIG placements as objects."""
    hardware = msgspec.convert(card["status"]["hardware"], gpudevice.Hardware)
    profiles = hardware.mig.profiles if hardware.mig else ()
    listed = [
        {
            "name": each.name,
            "count": each.count,
            "memoryMiB": each.memory_mib,
            "slices": each.slices,
            "starts": list(each.starts),
        }
        for each in profiles
    ]
    mig = {**card["status"]["hardware"]["mig"], "placements": listed}
    return {**card, "status": {**card["status"], "hardware": {**card["status"]["hardware"], "mig": mig}}}
