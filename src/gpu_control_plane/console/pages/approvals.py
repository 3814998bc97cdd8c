"""Approvals: cards that are in no pool, by reason, and what to do with many of them at once."""

from collections import Counter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.actions.approvals import plan_approve
from gpu_control_plane.actions.card_service import plan_hold, plan_release_hold
from gpu_control_plane.actions.carry_out import Outcome, carry_out
from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.console.audit import describe_action
from gpu_control_plane.console.errors import BadRequest
from gpu_control_plane.console.page import POST, Fragment, Page, needs
from gpu_control_plane.console.pages.listing import Listing, make_listing
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.cards import CardRow, card_rows
from gpu_control_plane.views.fleet import Fleet

_EVERY: Final = "all"
_MOST_FIELDS: Final = 1100
_MOST_BYTES: Final = 64 * 1024


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has put into the form."""

    cards: tuple[str, ...]
    pool: str | None
    reason: str | None


@per_fleet
def _pending(fleet: Fleet) -> list[CardRow]:
    return card_rows(card for card in fleet.cards.values() if card.status.pool_ref is None)


async def show(request: Request) -> Response:
    return page_response(request, "approvals.html", **await _context(request))


async def _rows(request: Request) -> str:
    return render(request, "approvals_rows.html", **await _context(request))


async def dry_run(request: Request) -> Response:
    """What approving the chosen cards leads to; nothing is written."""
    fleet, asked = await fleet_of(request), await _asked(request)
    plan = plan_approve(fleet, asked.cards, asked.pool, asked.reason) if asked.cards else None
    return page_response(request, "approvals_plan.html", plan=plan, chosen=len(asked.cards))


async def approve(request: Request) -> Response:
    asked = await _asked(request)
    plan = plan_approve(await fleet_of(request), asked.cards, asked.pool, asked.reason)
    return await _done(request, plan, asked)


async def hold(request: Request) -> Response:
    asked = await _asked(request)
    return await _done(request, plan_hold(await fleet_of(request), asked.cards, asked.reason), asked)


async def release(request: Request) -> Response:
    asked = await _asked(request)
    return await _done(request, plan_release_hold(await fleet_of(request), asked.cards), asked)


async def _done(request: Request, plan: Plan, asked: Asked) -> Response:
    """Carry a plan out as the person, and say of each card what became of it."""
    if not asked.cards:
        raise BadRequest("Choose at least one card.")
    describe_action(request, cards=list(asked.cards), command=plan.command, why=asked.reason)
    outcomes: tuple[Outcome, ...] = await carry_out(request.state.viewer.client, plan)
    failed = [outcome for outcome in outcomes if not outcome.done]
    return page_response(
        request, "approvals_outcome.html", plan=plan, done=len(outcomes) - len(failed), failed=failed
    )


async def _context(request: Request) -> dict[str, object]:
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


async def _asked(request: Request) -> Asked:
    async with request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=_MOST_BYTES) as form:
        return Asked(
            cards=tuple(card for card in form.getlist("card") if isinstance(card, str)),
            pool=str(form.get("pool") or "") or None,
            reason=str(form.get("why") or "").strip() or None,
        )


_PATCH: Final = (needs("patch", GPUDevice),)

PAGES: Final = (
    Page(
        path="/approvals",
        show=show,
        live=(Fragment(target="pending", kinds=(GPUDevice, GPUNodeState, GPUPool), render=_rows),),
    ),
    Page(path="/approvals/dry-run", show=dry_run, methods=POST),
    Page(path="/approvals/approve", show=approve, methods=POST, needs=_PATCH),
    Page(path="/approvals/hold", show=hold, methods=POST, needs=_PATCH),
    Page(path="/approvals/release", show=release, methods=POST, needs=_PATCH),
)
