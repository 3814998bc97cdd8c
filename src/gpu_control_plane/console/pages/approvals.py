"""Approvals: cards that are in no pool, by reason, and what to do with many of them at once."""

from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.pages.listing import Listing, make_listing
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.cards import CardRow, card_rows
from gpu_control_plane.views.fleet import Fleet

_EVERY: Final = "all"


@per_fleet
def _pending(fleet: Fleet) -> list[CardRow]:
    return card_rows(card for card in fleet.cards.values() if card.status.pool_ref is None)


async def show(request: Request) -> Response:
    return page_response(request, "approvals.html", **await _context(request))


async def _rows(request: Request) -> str:
    return render(request, "approvals_rows.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    rows = _pending(fleet)
    query = request.query_params
    reasons = Counter(row.reason or "" for row in rows)
    reason = query.get("reason") or (PendingReason.APPROVAL if reasons[PendingReason.APPROVAL] or not rows else _EVERY)
    found = [
        row
        for row in rows
        if reason in {_EVERY, row.reason}
        and query.get("model", "") in {"", row.product}
        and query.get("node", "") in {"", row.node}
    ]
    listing: Listing[CardRow] = make_listing(
        request,
        found,
        sorts={
            "name": lambda row: row.name,
            "model": lambda row: (row.product or "", row.name),
            "reason": lambda row: (row.reason or "", row.name),
            "age": lambda row: row.created,
        },
        default="name",
        words=lambda row: (row.name, row.product, row.reason, row.node, row.uuid),
    )
    return {
        "fleet": fleet,
        "listing": listing,
        "reason": reason,
        "reasons": [(name, count) for name, count in sorted(reasons.items(), key=_by_number)],
        "every": _EVERY,
        "pending": len(rows),
        "models": [(model, model) for model in sorted({row.product for row in rows if row.product})],
        "nodes": [(node, node) for node in sorted({row.node for row in rows})],
        "pools": sorted(fleet.pools),
        "meanings": {word.value: word.meaning for word in PendingReason},
        "may_patch": await permission(request, "patch", GPUDevice),
    }


def _by_number(entry: tuple[str, int]) -> tuple[bool, int, str]:
    reason, count = entry
    return reason != PendingReason.APPROVAL, -count, reason


PAGES: Final = (
    Page(
        path="/approvals",
        show=show,
        live=(Fragment(target="pending", kinds=(GPUDevice, GPUNodeState, GPUPool), render=_rows),),
    ),
)
