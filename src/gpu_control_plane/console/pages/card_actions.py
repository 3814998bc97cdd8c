"""What people do with cards, one or many: each action as a dry run, which says what it leads to, and for real.

The plans are those of `kubectl gpu`; the API server decides what it lets the person do.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.actions.approvals import plan_approve, plan_reassign, plan_revoke
from gpu_control_plane.actions.card_service import (
    plan_clear_fault,
    plan_hold,
    plan_release_hold,
    plan_retire,
    plan_unretire,
)
from gpu_control_plane.actions.carry_out import carry_out
from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.console.audit import describe_action
from gpu_control_plane.console.errors import BadRequest, NoSuchThing
from gpu_control_plane.console.page import POST, Page, needs
from gpu_control_plane.console.pages.per_fleet import fleet_of
from gpu_control_plane.console.rendering import page_response
from gpu_control_plane.views.fleet import Fleet

_MOST_CARDS: Final = 1000
_LONGEST_FIELD: Final = 4096


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has put into the form."""

    cards: tuple[str, ...]
    pool: str = ""
    reason: str | None = None


ACTIONS: Final[Mapping[str, Callable[[Fleet, Asked], Plan]]] = {
    "approve": lambda fleet, asked: plan_approve(fleet, asked.cards, asked.pool or None, asked.reason),
    "reassign": lambda fleet, asked: plan_reassign(fleet, asked.cards, asked.pool, asked.reason),
    "revoke": lambda fleet, asked: plan_revoke(fleet, asked.cards, asked.reason),
    "hold": lambda fleet, asked: plan_hold(fleet, asked.cards, asked.reason),
    "release": lambda fleet, asked: plan_release_hold(fleet, asked.cards),
    "retire": lambda fleet, asked: plan_retire(fleet, asked.cards, asked.reason),
    "unretire": lambda fleet, asked: plan_unretire(fleet, asked.cards, asked.reason),
    "clear-fault": lambda fleet, asked: plan_clear_fault(fleet, asked.cards, asked.reason),
}


async def dry_run(request: Request) -> Response:
    """What the action leads to; nothing is written."""
    asked = await _asked(request)
    plan = _plan(request, await fleet_of(request), asked) if asked.cards else None
    return page_response(request, _template(request, "plan.html"), plan=plan)


async def carry_out_action(request: Request) -> Response:
    """Carry the plan out as the person, and say of each card what became of it."""
    asked = await _asked(request)
    if not asked.cards:
        raise BadRequest("Choose at least one card.")
    plan = _plan(request, await fleet_of(request), asked)
    describe_action(request, cards=list(asked.cards), command=plan.command, why=asked.reason)
    outcomes = await carry_out(request.state.viewer.client, plan)
    failed = [outcome for outcome in outcomes if not outcome.done]
    return page_response(
        request, _template(request, "outcome.html"), plan=plan, done=len(outcomes) - len(failed), failed=failed
    )


def _plan(request: Request, fleet: Fleet, asked: Asked) -> Plan:
    plan = ACTIONS.get(request.path_params["action"])
    if plan is None:
        raise NoSuchThing("There is no such action.")
    return plan(fleet, asked)


def _template(request: Request, part: str) -> str:
    """A part for a page that is open, or a page of its own for a browser without scripts."""
    return part if "hx-request" in request.headers else f"alone_{part}"


async def _asked(request: Request) -> Asked:
    async with request.form(max_files=0, max_fields=_MOST_CARDS + 10, max_part_size=_LONGEST_FIELD) as form:
        return Asked(
            cards=tuple(card for card in form.getlist("card") if isinstance(card, str)),
            pool=str(form.get("pool") or ""),
            reason=str(form.get("why") or "").strip() or None,
        )


PAGES: Final = (
    Page(path="/actions/{action}/dry-run", show=dry_run, methods=POST),
    Page(path="/actions/{action}", show=carry_out_action, methods=POST, needs=(needs("patch", GPUDevice),)),
)
