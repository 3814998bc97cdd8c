"""Cards, and one card: where it stands, who has it, what it shows, what happened to it, what can be done with it."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.actions.approvals import joinable_pools
from gpu_control_plane.actions.card_plan import unreadable
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.console.errors import NoSuchThing
from gpu_control_plane.console.fleet_caches import HIDDEN
from gpu_control_plane.console.page import Fragment, Page, needs
from gpu_control_plane.console.pages.listing import make_listing
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.pages.plots import card_plots
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.pools.explain.objects import explain_device
from gpu_control_plane.views.cards import card_row
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.fleet_map import cell_of


@per_fleet
def _rows(fleet: Fleet) -> list[tuple[GPUDevice, str]]:
    return [(card, cell_of(card).word) for card in fleet.cards.values()]


async def show_list(request: Request) -> Response:
    return page_response(request, "cards.html", **await _list_context(request))


async def _list_rows(request: Request) -> str:
    return render(request, "cards_rows.html", **await _list_context(request))


async def _list_context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    query = request.query_params
    chosen = {name: query.get(name, "") for name in ("pool", "model", "state", "load", "node")}

    def wanted(card: GPUDevice, cell: str) -> bool:
        status = card.status
        return (
            chosen["pool"] in {"", status.pool_ref.name if status.pool_ref is not None else "-"}
            and chosen["model"] in {"", status.hardware.product if status.hardware is not None else "-"}
            and chosen["state"] in {"", str(status.state or "")}
            and chosen["node"] in {"", card.spec.node_name}
            and chosen["load"] in {"", cell}
        )

    listing = make_listing(
        request,
        [card for card, cell in _rows(fleet) if wanted(card, cell)],
        sorts={
            "name": lambda card: (card.spec.node_name, card.spec.pci_address),
            "pool": lambda card: (card.status.pool_ref.name if card.status.pool_ref is not None else "", card.name),
            "state": lambda card: (str(card.status.state or ""), card.name),
            "busy": lambda card: card.status.telemetry.utilisation if card.status.telemetry is not None else None,
        },
        default="name",
        words=_words,
    )
    return {
        "fleet": fleet,
        "listing": listing,
        "rows": [(row, cell_of(fleet.cards[row.name]).word) for row in map(card_row, listing.rows)],
        "chosen": chosen,
        "pools": [(name, name) for name in sorted(fleet.pools)],
        "models": [
            (model, model)
            for model in sorted({card.status.hardware.product for card, _ in _rows(fleet) if card.status.hardware})
        ],
        "states": list(DeviceState),
        "hidden": HIDDEN,
    }


def _words(card: GPUDevice) -> tuple[object, ...]:
    status = card.status
    hardware = status.hardware
    return (
        card.name,
        card.spec.pci_address,
        hardware.product if hardware is not None else None,
        hardware.uuid if hardware is not None else None,
        status.pool_ref.name if status.pool_ref is not None else None,
        status.pending_reason,
        *(f"{user.namespace}/{user.pod}" for user in status.used_by),
    )


async def show(request: Request) -> Response:
    context = await _context(request)
    fleet: Fleet = context["fleet"]
    card: GPUDevice = context["card"]
    pools = () if unreadable(fleet) else joinable_pools(fleet, card.name)
    return page_response(
        request,
        "card.html",
        **context,
        **await _plots(request, card),
        joinable=[name for name in pools if name != context["row"].pool],
        may_patch=await permission(request, "patch", GPUDevice),
    )


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    card = fleet.cards.get(request.path_params["name"])
    if card is None:
        raise NoSuchThing(f"There is no card {request.path_params['name']}.")
    return {
        "fleet": fleet,
        "card": card,
        "row": card_row(card),
        "cell": cell_of(card).word,
        "findings": sorted(explain_device(card), key=lambda finding: finding.fine),
        "hidden": HIDDEN,
    }


async def _plots(request: Request, card: GPUDevice) -> dict[str, Any]:
    state = request.app.state
    seen = await state.prometheus.of_card(card) if state.prometheus is not None else ()
    readings = seen or state.card_history.of(card.name, datetime.now(UTC))
    hardware = card.status.hardware
    return {
        "plots": card_plots(readings, hardware.memory_mib if hardware is not None else None),
        "since": None if seen else state.card_history.since,
    }


async def _plots_part(request: Request) -> str:
    card: GPUDevice = (await _context(request))["card"]
    return render(request, "card_plots.html", **await _plots(request, card))


def _part(template: str) -> Callable[[Request], Awaitable[str]]:
    async def part(request: Request) -> str:
        return render(request, template, **await _context(request))

    return part


_SEES_CARDS: Final = (needs("list", GPUDevice),)

PAGES: Final = (
    Page(
        path="/cards",
        show=show_list,
        needs=_SEES_CARDS,
        live=(Fragment(target="cards", kinds=(GPUDevice, GPUPool), render=_list_rows, shared=True),),
    ),
    Page(
        path="/cards/{name}",
        show=show,
        needs=_SEES_CARDS,
        live=(
            Fragment(target="heading", kinds=(GPUDevice,), render=_part("card_heading.html"), shared=True),
            Fragment(target="main-state", kinds=(GPUDevice,), render=_part("card_main.html"), shared=True),
            Fragment(target="plots", kinds=(GPUDevice,), render=_plots_part, shared=True),
            Fragment(target="side-state", kinds=(GPUDevice,), render=_part("card_side.html"), shared=True),
        ),
    ),
)
