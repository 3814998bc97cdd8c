"""Nodes, and one node: whether it serves pods, its conditions with what to do, its cards and how they are linked."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.console.errors import NoSuchThing
from gpu_control_plane.console.fleet_caches import HIDDEN
from gpu_control_plane.console.page import Fragment, Page, needs
from gpu_control_plane.console.pages.listing import make_listing
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.pages.topology import topology
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.pools.explain.objects import explain_node
from gpu_control_plane.views.cards import card_rows
from gpu_control_plane.views.fleet_map import cell_of
from gpu_control_plane.views.nodes import READY, NodeRow, node_row, node_rows

_ATTENTION: Final = "attention"
_remembered_rows = per_fleet(node_rows)


async def show_list(request: Request) -> Response:
    return page_response(request, "nodes.html", **await _list_context(request))


async def _list_rows(request: Request) -> str:
    return render(request, "nodes_rows.html", **await _list_context(request))


async def _list_context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    rows = _remembered_rows(fleet)
    state = request.query_params.get("state", "")
    pool = request.query_params.get("pool", "")

    def wanted(row: NodeRow) -> bool:
        right_state = state in {"", row.state} or (state == _ATTENTION and row.state != READY)
        return right_state and (not pool or pool in row.pools)

    listing = make_listing(
        request,
        [row for row in rows if wanted(row)],
        sorts={
            "name": lambda row: row.name,
            "state": lambda row: (row.state == READY, row.state, row.name),
            "free": lambda row: row.free,
            "driver": lambda row: (row.driver or "", row.name),
        },
        default="name",
        words=lambda row: (row.name, row.state, row.driver, *row.models, *row.pools),
    )
    return {
        "fleet": fleet,
        "listing": listing,
        "state": state,
        "pool": pool,
        "states": [(word, word) for word in sorted({row.state for row in rows})],
        "pools": [(name, name) for name in sorted(fleet.pools)],
        "attention": _ATTENTION,
        "ready": READY,
    }


async def show(request: Request) -> Response:
    return page_response(
        request, "node.html", **await _context(request), may_patch=await permission(request, "patch", GPUDevice)
    )


async def _state(request: Request) -> str:
    return render(request, "node_state.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    name = request.path_params["name"]
    state = fleet.states.get(name)
    if state is None:
        raise NoSuchThing(f"There is no GPU node {name}.")
    cards = [card for card in fleet.cards.values() if card.spec.node_name == name]
    return {
        "fleet": fleet,
        "row": node_row(state, fleet.nodes.get(name)),
        "node": fleet.nodes.get(name),
        "findings": sorted(explain_node(state), key=lambda finding: finding.fine),
        "cards": [(row, cell_of(fleet.cards[row.name]).word) for row in card_rows(cards)],
        "steps": state.status.validation.steps if state.status.validation is not None else (),
        "drawing": topology(cards),
        "ready": READY,
        "hidden": HIDDEN,
    }


_KINDS: Final = (GPUNodeState, GPUDevice, Node)
_SEES_NODES: Final = (needs("list", GPUNodeState),)

PAGES: Final = (
    Page(
        path="/nodes",
        show=show_list,
        needs=_SEES_NODES,
        live=(Fragment(target="nodes", kinds=(GPUNodeState, Node), render=_list_rows, shared=True),),
    ),
    Page(
        path="/nodes/{name}",
        show=show,
        needs=_SEES_NODES,
        live=(Fragment(target="state", kinds=_KINDS, render=_state, shared=True),),
    ),
)
