"""GPU-hours held, used and held idle: what `kubectl gpu usage` says, of what the person may see."""

import csv
import io
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.actions.plan import command_line
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.console.fleet_caches import HIDDEN
from gpu_control_plane.console.page import Page, needs
from gpu_control_plane.console.pages.listing import make_listing
from gpu_control_plane.console.rendering import page_response
from gpu_control_plane.console.usage_answers import period_of, usage_for
from gpu_control_plane.usage.hours import UNKNOWN, By, under_other_names
from gpu_control_plane.usage.reading import NO_PROMETHEUS, Usage

_BY: Final = (By.NAMESPACE, By.POOL, By.OWNER)
_PERIODS: Final = ("1d", "7d", "30d")


async def show(request: Request) -> Response:
    return page_response(request, "usage.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    found = await usage_for(request)
    listing = make_listing(
        request,
        found.rows,
        sorts={
            "name": lambda row: row.key,
            "held": lambda row: row.held,
            "used": lambda row: row.used,
            "idle": lambda row: row.idle,
            "waste": lambda row: row.waste,
            "share": lambda row: row.share,
        },
        default="-held",
        words=lambda row: (row.key,),
    )
    since, measured = period_of(request), found.covered is not None
    return {
        "found": found,
        "listing": listing,
        "total": next(iter(under_other_names(found.rows, lambda _key: "total")), None),
        "measured": measured,
        "notes": [note for note in found.notes if note not in NO_PROMETHEUS],
        "since": since,
        "periods": _PERIODS,
        "groups": _BY,
        "hidden": HIDDEN,
        "unknown": UNKNOWN,
        "command": command_line("usage", since=since, by=str(found.by), no_prometheus=not measured),
    }


async def show_csv(request: Request) -> Response:
    """All rows for a spreadsheet."""
    found = await usage_for(request)
    name = f"gpu-hours-{period_of(request)}-by-{found.by}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(usage_csv(found), media_type="text/csv", headers=headers)


def usage_csv(found: Usage) -> str:
    """The rows as `kubectl gpu usage -o csv` has them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((found.by, "held", "used", "idle", "waste", "used_%", "unmeasured"))
    for row in found.rows:
        writer.writerow((row.key, row.held, row.used, row.idle, row.waste, row.share, row.unmeasured))
    return text.getvalue()


_SEES_CARDS: Final = (needs("list", GPUDevice),)

PAGES: Final = (
    Page(path="/usage", show=show, needs=_SEES_CARDS),
    Page(path="/usage.csv", show=show_csv, needs=_SEES_CARDS),
)
