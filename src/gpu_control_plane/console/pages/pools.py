"""Pools, one pool, and what a pool would change if it were written like this."""

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.actions.pool_files import NotAPool, read_pools
from gpu_control_plane.actions.pool_maintenance import view_maintenance
from gpu_control_plane.actions.preview import Preview, preview_pool
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.errors import NoSuchThing
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.console.page import GET, POST, Fragment, Page, needs
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.plots import capacity_plot
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.conditions import FALSE
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.pools.explain.objects import explain_pool
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.pods import Hold, pod_rows
from gpu_control_plane.views.pools import Tenant, pool_rows
from gpu_control_plane.views.tenants import read_tenant

_LONGEST_FILE: Final = 64 * 1024
_TENANT_SECONDS: Final = 10.0
_EXAMPLE: Final = """apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata:
  name: training
spec:
  deviceSelector:
    include:
      products: ["*H200*"]
  access:
    namespaces: ["team-a"]
  quotas:
    - namespace: team-a
      units: 8
"""

_rows_of = per_fleet(pool_rows)
_tenants: ExpiringAnswers[tuple[str, str], Tenant] = ExpiringAnswers(most=1000, now=time.monotonic)
_pods_of = per_fleet(pod_rows)


class QuotaLine(msgspec.Struct, frozen=True):
    """A limit of the pool, and what its namespace holds."""

    namespace: str
    limit: str
    units: int | None
    held: int


async def show_list(request: Request) -> Response:
    return page_response(request, "pools.html", **await _list_context(request))


async def _list(request: Request) -> str:
    return render(request, "pools_rows.html", **await _list_context(request))


async def _list_context(request: Request) -> dict[str, Any]:
    """With a namespace, also what it can get now: free, and within what quotas leave it."""
    fleet = await fleet_of(request)
    namespace = request.query_params.get("namespace", "").strip()
    rows, problem = _rows_of(fleet), ""
    if namespace:
        try:
            rows = pool_rows(fleet, await _tenant(request, namespace))
        except KubeError as error:
            problem = str(error)
    return {"fleet": fleet, "rows": rows, "namespace": namespace, "problem": problem, "example": _EXAMPLE}


async def _tenant(request: Request, namespace: str) -> Tenant:
    """The namespace as the person may see it, remembered for a while: open pages ask again and again."""
    client: Client = request.state.viewer.client

    async def read() -> Tenant:
        return (await read_tenant(client, namespace))[0]

    return await _tenants.get((request.state.viewer.name, namespace), read, lambda _tenant: _TENANT_SECONDS)


async def show(request: Request) -> Response:
    return page_response(request, "pool.html", **await _context(request))


async def _state(request: Request) -> str:
    return render(request, "pool_state.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    name = request.path_params["name"]
    pool = fleet.pools.get(name)
    if pool is None:
        raise NoSuchThing(f"There is no pool {name}.")
    row = next(row for row in _rows_of(fleet) if row.name == name)
    maintenance = view_maintenance(fleet, pool, datetime.now(UTC))
    earlier = request.app.state.prometheus
    seen = await earlier.of_pool(name) if earlier is not None else ()
    samples = seen or request.app.state.history.of(name)
    return {
        "fleet": fleet,
        "pool": pool,
        "row": row,
        "maintenance": maintenance if maintenance.target or maintenance.awaits_confirmation else None,
        "findings": [finding for finding in explain_pool(pool) if not finding.fine],
        "conditions": pool.status.conditions,
        "false": FALSE,
        "quotas": _quotas(fleet, pool),
        "waiting": [each for each in _pods_of(fleet) if each.status is Hold.WAITS and name in each.pools],
        "plot": capacity_plot(samples),
        "since": samples[0].at if samples and not seen else None,
        "worst": pool.status.nodes.worst if pool.status.nodes is not None else (),
    }


def _quotas(fleet: Fleet, pool: GPUPool) -> list[QuotaLine]:
    held: Counter[str] = Counter()
    names = frozenset(pool.resource_names)
    for card in fleet.cards.values():
        for user in card.status.used_by:
            if user.resource in names:
                held[user.namespace] += user.units
    lines = []
    for quota in pool.spec.quotas:
        profiles = ", ".join(f"{each.profile}: {each.units}" for each in quota.profiles)
        limit = str(quota.units) if quota.units is not None else profiles
        lines.append(QuotaLine(quota.namespace, limit, quota.units, held[quota.namespace]))
    return lines


async def show_preview(request: Request) -> Response:
    """A form for a pool's YAML, with the pool that the URL names in it."""
    fleet = await fleet_of(request)
    pool = fleet.pools.get(request.query_params.get("pool", ""))
    return page_response(request, "preview.html", fleet=fleet, text=_written(pool) if pool else _EXAMPLE, pool=pool)


async def preview(request: Request) -> Response:
    """What writing it would lead to, by the decisions that would be made afterwards. Nothing is written."""
    async with request.form(max_files=0, max_fields=4, max_part_size=_LONGEST_FILE) as form:
        text = str(form.get("yaml") or "")
    fleet = await fleet_of(request)
    found: list[Preview] = []
    problem = ""
    try:
        found = [preview_pool(fleet, written.pool) for written in read_pools(text, "pool.yaml")]
    except NotAPool as error:
        problem = str(error)
    template = "preview_result.html" if "hx-request" in request.headers else "alone_preview_result.html"
    return page_response(request, template, previews=found, problem=problem)


def _written(pool: GPUPool) -> str:
    """The pool as a person would write it: without what the cluster has added."""
    import yaml  # noqa: PLC0415 - takes a while, and only this page needs it

    spec = msgspec.to_builtins(pool.spec)
    document = {
        "apiVersion": pool.resource.api_version,
        "kind": pool.resource.kind,
        "metadata": {"name": pool.name},
        "spec": spec,
    }
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


_KINDS: Final = (GPUPool, GPUDevice, GPUNodeState, WaitingPod)
_SEES_POOLS: Final = (needs("list", GPUPool),)

PAGES: Final = (
    Page(
        path="/pools",
        show=show_list,
        needs=_SEES_POOLS,
        live=(Fragment(target="pools", kinds=_KINDS, render=_list),),
    ),
    Page(
        path="/pools/{name}",
        show=show,
        needs=_SEES_POOLS,
        live=(Fragment(target="state", kinds=_KINDS, render=_state, shared=True),),
    ),
    Page(path="/preview", show=show_preview, methods=GET, needs=_SEES_POOLS),
    Page(path="/preview", show=preview, methods=POST, needs=_SEES_POOLS),
)
