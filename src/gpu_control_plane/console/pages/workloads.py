"""Workloads: the pods that hold cards and those that wait for some, and why one of them waits."""

import csv
import io
from collections import Counter
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.fleet_caches import HIDDEN
from gpu_control_plane.console.page import Fragment, Page, needs
from gpu_control_plane.console.pages.listing import make_listing
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pod_verdict import find_verdict
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.views.cards import card_row
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.fleet_map import cell_of
from gpu_control_plane.views.loads import Load
from gpu_control_plane.views.pods import Hold, PodRow, pod_rows

_KINDS: Final = (GPUDevice, GPUNodeState, GPUPool, Node, WaitingPod)
_SHOWN: Final = ("all", "computing", "idle", "waiting")


class Workloads(msgspec.Struct, frozen=True):
    rows: list[PodRow]
    """Those that the person may know of."""
    hidden_units: int
    """Units that pods of other namespaces hold."""
    counts: Counter[str]


@per_fleet
def _workloads(fleet: Fleet) -> Workloads:
    rows = pod_rows(fleet)
    seen = [row for row in rows if row.namespace != HIDDEN]
    hidden = sum(row.units for row in rows if row.namespace == HIDDEN)
    counts = Counter(_class_of(row) for row in seen)
    counts["all"] = len(seen)
    return Workloads(seen, hidden, counts)


def _class_of(row: PodRow) -> str:
    if row.status is Hold.WAITS:
        return "waiting"
    return "idle" if row.load is Load.HELD_IDLE else "computing" if row.load is Load.COMPUTING else "held"


async def show_list(request: Request) -> Response:
    return page_response(request, "workloads.html", **await _list_context(request))


async def _list(request: Request) -> str:
    return render(request, "workloads_rows.html", **await _list_context(request))


async def _list_context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    found = _workloads(fleet)
    shown = request.query_params.get("show", "all")
    namespace = request.query_params.get("namespace", "")
    listing = make_listing(
        request,
        [row for row in found.rows if shown in {"all", _class_of(row)} and namespace in {"", row.namespace}],
        sorts={
            "name": lambda row: (row.namespace, row.name),
            "units": lambda row: row.units,
            "load": lambda row: (row.status, str(row.load or ""), row.namespace, row.name),
            "node": lambda row: row.node,
        },
        default="name",
        words=lambda row: (row.namespace, row.name, row.node, row.reason, *row.pools),
    )
    return {
        "fleet": fleet,
        "listing": listing,
        "counts": found.counts,
        "hidden_units": found.hidden_units,
        "show": shown,
        "shown": _SHOWN,
        "namespace": namespace,
        "namespaces": [(name, name) for name in sorted({row.namespace for row in found.rows})],
        "waits": Hold.WAITS,
    }


async def show_csv(request: Request) -> Response:
    """The same rows for a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("namespace", "pod", "status", "load", "units", "pools", "node", "cards", "reason"))
    for row in _workloads(await fleet_of(request)).rows:
        cells = (
            row.namespace,
            row.name,
            row.status,
            row.load or "",
            row.units,
            " ".join(row.pools),
            row.node or "",
            " ".join(row.cards),
            row.reason or "",
        )
        writer.writerow(cells)
    return Response(
        text.getvalue(),
        media_type="text/csv",
        headers={"Content-Disposition": 'attachment; filename="gpu-workloads.csv"'},
    )


async def show_pod(request: Request) -> Response:
    return page_response(request, "pod.html", **await _pod_context(request))


async def _verdict(request: Request) -> str:
    return render(request, "pod_verdict.html", **await _pod_context(request))


async def _pod_context(request: Request) -> dict[str, Any]:
    found = await find_verdict(request)
    explained, waiting = found.explanation, found.waiting
    pools = request.app.state.caches.whole().pools
    return {
        "namespace": request.path_params["namespace"],
        "name": request.path_params["name"],
        "waiting": waiting,
        "explained": explained,
        "facts": explained.facts if explained is not None else (),
        "cards": [(card_row(card), cell_of(card).word) for card in found.cards],
        "pool": pools.get(explained.pool) if explained is not None else None,
        "scheduler": waiting.trouble if waiting is not None else "",
    }


PAGES: Final = (
    Page(
        path="/workloads",
        show=show_list,
        live=(Fragment(target="pods", kinds=_KINDS, render=_list, shared=True),),
    ),
    Page(path="/workloads.csv", show=show_csv),
    Page(
        path="/pods/{namespace}/{name}",
        show=show_pod,
        needs=(needs("get", "pods", namespace_from="namespace"),),
        live=(Fragment(target="verdict", kinds=_KINDS, render=_verdict),),
    ),
)
