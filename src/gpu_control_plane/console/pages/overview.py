"""The overview: what needs a person, the fleet as a map, what is free by model, and the pools."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.fleet_map import Cell, FleetMap, cell_of, changed_cells, map_of
from gpu_control_plane.views.overview import Todo, TodoKind, overview

MOST_LINKS: Final = 2000
"""Cards up to which the map is made of links; above, a canvas draws it."""
_KEPT_VERSIONS: Final = 32
_KINDS: Final = (GPUDevice, GPUNodeState, GPUPool, Node, WaitingPod)

overview_of = per_fleet(overview)
whole_map_of = per_fleet(map_of)
_sent: OrderedDict[str, FleetMap] = OrderedDict()
"""Maps that browsers may have, by version: what they ask for next is the difference."""


class TodoLine(msgspec.Struct, frozen=True):
    """A to-do entry as the page shows it."""

    todo: Todo
    details: str
    path: str


async def show(request: Request) -> Response:
    fleet = await fleet_of(request)
    return page_response(request, "overview.html", **_context(fleet), **_map_context(request, fleet))


async def show_map(request: Request) -> Response:
    """The cells as JSON: everything, or what has changed since the version that the browser has."""
    found = _map(request, await fleet_of(request))
    version = found.version
    known = _sent.get(request.query_params.get("since", ""))
    _remember(version, found)
    if known is not None and known.layout == found.layout:
        answer: dict[str, Any] = {"version": version, "changes": changed_cells(known.cells, found.cells)}
    else:
        groups = [
            {"pool": group.pool, "nodes": [[node.name, len(node.cards)] for node in group.nodes]}
            for group in found.groups
        ]
        answer = {"version": version, "layout": found.layout, "groups": groups, "cells": found.cells.decode()}
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def show_map_node(request: Request) -> Response:
    """The cards of one node as links: what the canvas shows when somebody looks closer."""
    found = whole_map_of(await fleet_of(request))
    wanted = request.query_params.get("name", "")
    node = next((node for group in found.groups for node in group.nodes if node.name == wanted), None)
    return page_response(request, "map_node.html", node=node, cells=_cells(node.cards if node else ()))


def _part(template: str) -> Callable[[Request], Awaitable[str]]:
    async def part(request: Request) -> str:
        return render(request, template, **_context(await fleet_of(request)))

    return part


async def _map_counts(request: Request) -> str:
    return render(request, "map_counts.html", **_map_context(request, await fleet_of(request)))


async def _map_version(request: Request) -> str:
    return _map(request, await fleet_of(request)).version


def _context(fleet: Fleet) -> dict[str, Any]:
    seen = overview_of(fleet)
    return {
        "fleet": fleet,
        "seen": seen,
        "todo": [TodoLine(todo, _details(todo), _path(todo)) for todo in seen.todo],
        "counts": {cell.word: count for cell, count in whole_map_of(fleet).counts.items()},
    }


def _map_context(request: Request, fleet: Fleet) -> dict[str, Any]:
    found = _map(request, fleet)
    pool = request.query_params.get("pool") or None
    _remember(found.version, found)
    return {
        "map": found,
        "map_counts": found.counts,
        "cells": Cell,
        "as_links": len(found.cells) <= MOST_LINKS,
        "groups": [(group, [(node, _cells(node.cards)) for node in group.nodes]) for group in found.groups]
        if len(found.cells) <= MOST_LINKS
        else [],
        "pool": pool,
        "map_url": "/fleet-map" + (f"?{urlencode({'pool': pool})}" if pool else ""),
    }


def _map(request: Request, fleet: Fleet) -> FleetMap:
    pool = request.query_params.get("pool")
    return map_of(fleet, pool) if pool else whole_map_of(fleet)


def _cells(cards: tuple[GPUDevice, ...]) -> list[tuple[GPUDevice, Cell]]:
    return [(card, cell_of(card)) for card in cards]


def _remember(version: str, found: FleetMap) -> None:
    _sent[version] = found
    _sent.move_to_end(version)
    if len(_sent) > _KEPT_VERSIONS:
        _sent.popitem(last=False)


def _details(todo: Todo) -> str:
    """What the sentence says beyond the number: the reason, and the first of the names."""
    what, _, names = todo.sentence.partition(": ")
    reason = what.partition(", ")[2]
    return ": ".join(filter(None, (reason, names)))


def _path(todo: Todo) -> str:
    """The page on which it is dealt with: that of the one object it is about, or of all of them."""
    one, many = _PATHS[todo.kind]
    return one.format(quote(todo.names[0])) if one and len(todo.names) == 1 else many


_PATHS: Final[Mapping[TodoKind, tuple[str, str]]] = {
    TodoKind.NOTHING_INSTALLED: ("", "/stack"),
    TodoKind.FAULTED: ("/cards/{}", f"/cards?{urlencode({'state': DeviceState.FAULTED})}"),
    TodoKind.NODES: ("/nodes/{}", "/nodes?state=attention"),
    TodoKind.UPGRADE_FAILED: ("/nodes/{}", "/stack"),
    TodoKind.POOLS: ("/pools/{}", "/pools"),
    TodoKind.PODS_WAIT: ("/pods/{}", "/workloads?show=waiting"),
    TodoKind.IGNORED_APPROVALS: ("/cards/{}", "/approvals?reason=all"),
    TodoKind.BURN_IN_FAILED: ("/cards/{}", f"/approvals?{urlencode({'reason': PendingReason.BURN_IN_FAILED})}"),
    TodoKind.APPROVAL: ("", "/approvals"),
    TodoKind.UPGRADE: ("", "/stack"),
    TodoKind.NO_POOL: ("/cards/{}", f"/approvals?{urlencode({'reason': PendingReason.NO_POOL})}"),
    TodoKind.HELD_IDLE: ("/cards/{}", "/workloads?show=idle"),
    TodoKind.NO_NODES: ("", "/nodes"),
}


PAGES: Final = (
    Page(
        path="/",
        show=show,
        live=(
            Fragment(target="figures", kinds=_KINDS, render=_part("overview_figures.html"), shared=True),
            Fragment(target="todo", kinds=_KINDS, render=_part("overview_todo.html"), shared=True),
            Fragment(target="side", kinds=_KINDS, render=_part("overview_side.html"), shared=True),
            Fragment(target="map-counts", kinds=(GPUDevice, GPUPool), render=_map_counts, shared=True),
            Fragment(
                target="fleet-map", kinds=(GPUDevice, GPUPool), render=_map_version, shared=True, event="fleetmap"
            ),
        ),
    ),
    Page(path="/fleet-map", show=show_map),
    Page(path="/fleet-map/node", show=show_map_node),
)
