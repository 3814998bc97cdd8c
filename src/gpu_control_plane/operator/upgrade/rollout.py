"""Whose turn it is. Pure.

Decided in one place from one picture of all nodes, so that no turn is given twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, UpgradePolicy
from gpu_control_plane.operator.upgrade.actions import Change
from gpu_control_plane.operator.upgrade.eviction import policy_fault
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.slots import free_turns, share, slots
from gpu_control_plane.operator.upgrade.step import step

_NAMED: Final = 5


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """Who begins now, and what the others wait for."""

    begin: Mapping[str, Change] = {}
    """First writes, by node, in order."""
    slots: int = 0
    """Nodes in service that could be taken out of it now."""
    message: str = ""


def rollout(policy: UpgradePolicy, views: Sequence[NodeView], now: float) -> Rollout:
    """The next turns. The views show every turn that was given.

    A node that has no driver of ours takes no part: neither in the number of nodes that a share is taken of, nor as one
    that goes first.
    """
    views = [view for view in views if view.managed]
    waiting = [view for view in views if view.state is UpgradeState.REQUIRED]
    candidates = {view.name: first for view in waiting if (first := _first_step(view, policy, now)) is not None}
    busy = [view for view in views if view.holds_turn]
    most = share(len(views), policy.max_unavailable)
    unavailable = sum(view.unavailable for view in views)
    free = slots(
        total=len(views),
        required=len(candidates),
        in_progress=len(busy),
        unavailable=unavailable,
        parallel=policy.max_parallel_upgrades,
        max_unavailable=most,
    )
    if not candidates:
        return Rollout(slots=free, message=_idle(waiting))
    if closed := _closed(policy):
        return Rollout(slots=free, message=closed)
    allowed, message = _canaries_first(policy.canary, views, now, policy)
    turns = free_turns(required=len(candidates), in_progress=len(busy), parallel=policy.max_parallel_upgrades)
    begin: dict[str, Change] = {}
    taken_out = 0
    for view in sorted(waiting, key=lambda view: view.name):
        if view.name not in candidates or (allowed is not None and view.name not in allowed):
            continue
        if len(begin) < turns and (view.unavailable or taken_out < free):
            begin[view.name] = candidates[view.name]
            taken_out += not view.unavailable
    if not begin and not message:
        message = _full(turns=turns, busy=len(busy), unavailable=unavailable, most=most)
    return Rollout(begin=begin, slots=free, message=message)


def canaries(wanted: Canary, views: Iterable[NodeView]) -> list[NodeView]:
    """The nodes that go first. A node that is to be left alone is none of them: it would hold up all others."""
    nodes = sorted((view for view in views if not view.skipped), key=lambda view: view.name)
    if wanted.node_selector:
        pairs = wanted.node_selector.items()
        return [view for view in nodes if all(view.labels.get(key) == value for key, value in pairs)]
    return nodes[: wanted.nodes]


def _canaries_first(
    wanted: Canary | None, views: Sequence[NodeView], now: float, policy: UpgradePolicy
) -> tuple[AbstractSet[str] | None, str]:
    """The nodes that may begin, None for all, and what the others wait for.

    A label alone does not say that a canary is done: it may just not have been changed yet.
    """
    chosen = canaries(wanted, views) if wanted is not None else []
    failed = [view.name for view in chosen if view.state is UpgradeState.FAILED]
    if failed:
        return frozenset(), f"stopped: the upgrade failed on {_names(failed)}, which goes first"
    undone = [
        view.name
        for view in chosen
        if view.state is not UpgradeState.DONE or isinstance(step(view, policy, now), Change)
    ]
    if undone:
        away = [view.name for view in chosen if view.name in undone and not view.ready]
        return frozenset(undone), f"{_names(undone)} goes first{f', but {_names(away)} is not ready' if away else ''}"
    return None, ""


def _first_step(view: NodeView, policy: UpgradePolicy, now: float) -> Change | None:
    """What the node would do if it were its turn; None if it could not begin."""
    found = step(msgspec.structs.replace(view, granted=True), policy, now)
    begins = {UpgradeState.CORDON_REQUIRED, UpgradeState.POD_RESTART_REQUIRED}
    return found if isinstance(found, Change) and found.state in begins else None


def _closed(policy: UpgradePolicy) -> str:
    return "paused: no further node begins" if policy.paused else policy_fault(policy) or ""


def _idle(waiting: Sequence[NodeView]) -> str:
    """Why nobody could begin although there are nodes that need it."""
    for why, nodes in (
        ("not ready", [view.name for view in waiting if not view.skipped and not view.ready]),
        ("without a driver pod", [view.name for view in waiting if not view.skipped and not view.drivers]),
        ("to get a driver from nobody", [view.name for view in waiting if not view.skipped and view.without_successor]),
    ):
        if nodes:
            return f"waiting for nodes that are {why}: {_names(nodes)}"
    return ""


def _full(*, turns: int, busy: int, unavailable: int, most: int) -> str:
    if turns:
        return f"{_nodes(unavailable)} out of service, and no more than {most} may be (maxUnavailable)"
    return f"{_nodes(busy)} under way, and no more may be (maxParallelUpgrades)"


def _nodes(number: int) -> str:
    return f"{number} {'node is' if number == 1 else 'nodes are'}"


def _names(nodes: Sequence[str]) -> str:
    found = sorted(nodes)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
