"""The table of the API: what is asked, with what, and what is answered. The OpenAPI document is made from it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from gpu_control_plane.actions.carry_out import Outcome, carry_out
from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.actions.pool_files import NotAPool, Previews, preview_pools, read_pools
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.audit import describe_action
from gpu_control_plane.console.errors import BadRequest, NoSuchThing
from gpu_control_plane.console.fleet_caches import HIDDEN
from gpu_control_plane.console.page import Needs, needs
from gpu_control_plane.console.pages.card_actions import ACTIONS, Asked
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pod_verdict import find_verdict
from gpu_control_plane.console.usage_answers import usage_for
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.pools.explain.explanation import Explanation
from gpu_control_plane.pools.explain.objects import Finding, explain_device, explain_node, explain_pool
from gpu_control_plane.usage.hours import By
from gpu_control_plane.usage.reading import Usage
from gpu_control_plane.views.cards import CardRow, card_rows
from gpu_control_plane.views.fleet import Missing
from gpu_control_plane.views.nodes import NodeRow, node_rows
from gpu_control_plane.views.overview import Overview, overview
from gpu_control_plane.views.pods import PodRow, pod_rows
from gpu_control_plane.views.pools import PoolRow, pool_rows
from gpu_control_plane.views.upgrades import UpgradeProgress, upgrade_progress

PREFIX: Final = "/api/v1"
_PAGE: Final = 1000
_LARGEST_PAGE: Final = 50_000
_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_LARGEST_BODY: Final = 256 * 1024
_PREVIEWED: Final = "pool.yaml"
"""What the file is called in answers."""


class Query(msgspec.Struct, frozen=True):
    """A parameter of the URL."""

    name: str
    about: str


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    path: str
    about: str
    function: Callable[[Request], Awaitable[msgspec.Struct]]
    answer: type[msgspec.Struct]
    method: str = "GET"
    body: type[msgspec.Struct] | None = None
    body_types: tuple[str, ...] = (_JSON,)
    query: tuple[Query, ...] = ()
    needs: tuple[Needs, ...] = ()


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asking, as the cluster knows them."""

    name: str
    groups: tuple[str, ...]


class CardList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[CardRow, ...]
    total: int
    missing: tuple[Missing, ...] = ()


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[NodeRow, ...]
    total: int
    missing: tuple[Missing, ...] = ()


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[PoolRow, ...]
    total: int
    missing: tuple[Missing, ...] = ()


class PodList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[PodRow, ...]
    total: int
    missing: tuple[Missing, ...] = ()


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth knowing of an object, what is wrong first."""

    items: tuple[Finding, ...]


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod waits, or which cards it holds."""

    waits: bool
    cards: tuple[str, ...] = ()
    explanation: Explanation | None = None


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What to do with which cards. `pool` is for approve and reassign."""

    cards: tuple[str, ...]
    pool: str = ""
    reason: str | None = None
    dry_run: bool = False


class PoolDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A GPUPool as people write it, as JSON or YAML; YAML may have several."""

    api_version: str
    kind: str
    metadata: dict[str, object]
    spec: dict[str, object]


class ActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned and, unless it was a dry run, what became of each edit."""

    plan: Plan
    outcomes: tuple[Outcome, ...] = ()


async def _me(request: Request) -> Me:
    return Me(name=request.state.viewer.name, groups=request.state.viewer.groups)


_overview_of = per_fleet(overview)
_card_rows_of = per_fleet(lambda fleet: card_rows(fleet.cards.values()))


async def _overview(request: Request) -> Overview:
    return _overview_of(await fleet_of(request))


async def _cards(request: Request) -> CardList:
    fleet = await fleet_of(request)
    wanted = {name: value for name, value in request.query_params.items() if name in ("pool", "node", "state")}
    pending = request.query_params.get("pending") == "true"
    rows = [
        row
        for row in _card_rows_of(fleet)
        if (not pending or row.pool is None) and all(str(getattr(row, name)) == value for name, value in wanted.items())
    ]
    return CardList(items=_paged(request, rows), total=len(rows), missing=fleet.missing)


async def _nodes(request: Request) -> NodeList:
    fleet = await fleet_of(request)
    rows = node_rows(fleet)
    return NodeList(items=_paged(request, rows), total=len(rows), missing=fleet.missing)


async def _pools(request: Request) -> PoolList:
    fleet = await fleet_of(request)
    rows = pool_rows(fleet)
    return PoolList(items=_paged(request, rows), total=len(rows), missing=fleet.missing)


async def _pods(request: Request) -> PodList:
    fleet = await fleet_of(request)
    namespace = request.query_params.get("namespace")
    rows = [row for row in pod_rows(fleet, namespace=namespace) if row.namespace != HIDDEN]
    return PodList(items=_paged(request, rows), total=len(rows), missing=fleet.missing)


async def _upgrades(request: Request) -> UpgradeProgress:
    return upgrade_progress(await fleet_of(request))


async def _explain_card(request: Request) -> Findings:
    return _findings(explain_device(_held((await fleet_of(request)).cards, request)))


async def _explain_node(request: Request) -> Findings:
    return _findings(explain_node(_held((await fleet_of(request)).states, request)))


async def _explain_pool(request: Request) -> Findings:
    return _findings(explain_pool(_held((await fleet_of(request)).pools, request)))


async def _explain_pod(request: Request) -> PodAnswer:
    found = await find_verdict(request)
    names = tuple(card.name for card in found.cards)
    return PodAnswer(waits=found.waiting is not None, cards=names, explanation=found.explanation)


async def _act(request: Request) -> ActionAnswer:
    asked = await _body(request, ActionRequest)
    plan_of = ACTIONS.get(request.path_params["action"])
    if plan_of is None:
        raise NoSuchThing(f"There is no such action; there are {', '.join(ACTIONS)}.")
    if not asked.cards:
        raise BadRequest("Name at least one card.")
    fleet = await fleet_of(request)
    plan = plan_of(fleet, Asked(cards=asked.cards, pool=asked.pool, reason=asked.reason))
    describe_action(request, cards=list(asked.cards), command=plan.command, why=asked.reason, dry_run=asked.dry_run)
    if asked.dry_run:
        return ActionAnswer(plan=plan)
    return ActionAnswer(plan=plan, outcomes=await carry_out(request.state.viewer.client, plan))


async def _preview(request: Request) -> Previews:
    content = await _content(request, (_JSON, _YAML))
    try:
        pools = await asyncio.to_thread(read_pools, content.decode(errors="replace"), _PREVIEWED)
    except NotAPool as error:
        raise BadRequest(str(error)) from None
    return await preview_pools(request.state.viewer.client, await fleet_of(request), pools, _PREVIEWED)


async def _usage(request: Request) -> Usage:
    found = await usage_for(request)
    return msgspec.structs.replace(found, rows=list(_paged(request, found.rows)))


_PAGING: Final = (
    Query("limit", f"How many to answer at most; {_PAGE} unless said, {_LARGEST_PAGE} at most."),
    Query("offset", "How many to leave out at the beginning."),
)
_CARD_QUERY: Final = (
    Query("pool", "Only cards of this pool."),
    Query("node", "Only cards of this node."),
    Query("state", "Only cards in this state."),
    Query("pending", "`true`: only cards in no pool, with the reason."),
    *_PAGING,
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(path="/me", about="Who is asking.", function=_me, answer=Me),
    Endpoint(
        path="/overview", about="What needs a person, and how many of everything.", function=_overview, answer=Overview
    ),
    Endpoint(
        path="/cards",
        about="The cards.",
        function=_cards,
        answer=CardList,
        query=_CARD_QUERY,
        needs=(needs("list", GPUDevice),),
    ),
    Endpoint(
        path="/nodes",
        about="The GPU nodes.",
        function=_nodes,
        answer=NodeList,
        query=_PAGING,
        needs=(needs("list", GPUNodeState),),
    ),
    Endpoint(
        path="/pools",
        about="The pools.",
        function=_pools,
        answer=PoolList,
        query=_PAGING,
        needs=(needs("list", GPUPool),),
    ),
    Endpoint(
        path="/pods",
        about="Pods that hold cards or wait for some, of namespaces whose pods the asker may list.",
        function=_pods,
        answer=PodList,
        query=(Query("namespace", "Only pods of this namespace."), *_PAGING),
    ),
    Endpoint(
        path="/upgrades", about="Where the upgrade of drivers stands.", function=_upgrades, answer=UpgradeProgress
    ),
    Endpoint(
        path="/cards/{name}/explanation",
        about="What a card does, or why it is in no pool.",
        function=_explain_card,
        answer=Findings,
        needs=(needs("list", GPUDevice),),
    ),
    Endpoint(
        path="/nodes/{name}/explanation",
        about="What is the matter with a node.",
        function=_explain_node,
        answer=Findings,
        needs=(needs("list", GPUNodeState),),
    ),
    Endpoint(
        path="/pools/{name}/explanation",
        about="What is the matter with a pool.",
        function=_explain_pool,
        answer=Findings,
        needs=(needs("list", GPUPool),),
    ),
    Endpoint(
        path="/pods/{namespace}/{name}/explanation",
        about="Why a pod waits, or which cards it holds.",
        function=_explain_pod,
        answer=PodAnswer,
        needs=(needs("list", WaitingPod, namespace_from="namespace"),),
    ),
    Endpoint(
        path="/actions/{action}",
        about=f"Do something with cards, or say what it would lead to: {', '.join(ACTIONS)}.",
        function=_act,
        answer=ActionAnswer,
        method="POST",
        body=ActionRequest,
    ),
    Endpoint(
        path="/preview",
        about="What would change if pools were written like this, as `kubectl gpu preview` says. Nothing is written.",
        function=_preview,
        answer=Previews,
        method="POST",
        body=PoolDocument,
        body_types=(_JSON, _YAML),
        needs=(needs("list", GPUPool),),
    ),
    Endpoint(
        path="/usage",
        about="GPU-hours held, used and held idle. Namespaces whose pods the asker may not list are one row, `hidden`.",
        function=_usage,
        answer=Usage,
        query=(
            Query("since", "How far back: 12h, 7d, 4w; 7d unless said."),
            Query("by", f"By what hours are added up: {', '.join(By)}."),
            *_PAGING,
        ),
        needs=(needs("list", GPUDevice),),
    ),
)


async def _body[T: msgspec.Struct](request: Request, kind: type[T]) -> T:
    content = await _content(request, (_JSON,))
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"The request is not understood: {error}.") from None


async def _content(request: Request, types: Sequence[str]) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() not in types:
        raise BadRequest(f"Send Content-Type: {' or '.join(types)}.")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST_BODY:
            raise BadRequest("That is more than is taken at once.")
    return bytes(content)


def _held[T: Object](objects: Mapping[str, T], request: Request) -> T:
    name = request.path_params["name"]
    found = objects.get(name)
    if found is None:
        raise NoSuchThing(f"There is no {name}.")
    return found


def _findings(found: Sequence[Finding]) -> Findings:
    return Findings(items=tuple(sorted(found, key=lambda finding: finding.fine)))


def _paged[T](request: Request, rows: Sequence[T]) -> tuple[T, ...]:
    limit, offset = _number(request, "limit", _PAGE), _number(request, "offset", 0)
    return tuple(rows[offset : offset + min(limit, _LARGEST_PAGE)])


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise BadRequest(f"{name} must be a number.")
    return int(text)
