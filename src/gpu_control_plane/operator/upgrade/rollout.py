"""Which nodes start their upgrade next. Pure.

Decided in one place from one view of all nodes, so that no slot is given twice.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, UpgradePolicy
from gpu_control_plane.kube.sentences import counted_are
from gpu_control_plane.operator.node_facts import selects
from gpu_control_plane.operator.upgrade.actions import NodePatch
from gpu_control_plane.operator.upgrade.eviction import policy_problem
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.step import step

_MOST_NAMED: Final = 5
_SHARE: Final = re.compile("[0-9]+%?", re.ASCII)


class RolloutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes start now, and why the others wait."""

    start: Mapping[str, NodePatch] = {}
    """The first writes, by node, in order."""
    slots: int = 0
    """How many nodes that are in service could be taken out of it now."""
    message: str = ""


def rollout(policy: UpgradePolicy, views: Sequence[NodeView], now: float) -> RolloutPlan:
    """The next starts. The views show every upgrade that was started.

    A node without a driver of ours takes no part: it neither counts for percentages, nor can it be a canary.
    """
    views = [view for view in views if view.managed]
    waiting = [view for view in views if view.state is UpgradeState.REQUIRED]
    candidates = {view.name: first for view in waiting if (first := _first_action(view, policy, now)) is not None}
    busy = [view for view in views if view.occupies_slot]
    most = scaled_value(len(views), policy.max_unavailable)
    unavailable = sum(view.unavailable for view in views)
    free = free_slots(
        total=len(views),
        required=len(candidates),
        in_progress=len(busy),
        unavailable=unavailable,
        parallel=policy.max_parallel_upgrades,
        max_unavailable=most,
    )
    if not candidates:
        return RolloutPlan(slots=free, message=_no_candidate_reason(waiting))
    if stopped := _stopped_reason(policy, views):
        return RolloutPlan(slots=free, message=stopped)
    allowed, message = _canaries_first(policy.canary, views, now, policy)
    parallel = free_parallel_slots(
        required=len(candidates), in_progress=len(busy), parallel=policy.max_parallel_upgrades
    )
    start: dict[str, NodePatch] = {}
    taken_out = 0
    for view in sorted(waiting, key=lambda view: view.name):
        if view.name not in candidates or (allowed is not None and view.name not in allowed):
            continue
        if len(start) < parallel and (view.unavailable or taken_out < free):
            start[view.name] = candidates[view.name]
            taken_out += not view.unavailable
    if not start and not message:
        message = _full(parallel=parallel, busy=len(busy), unavailable=unavailable, most=most)
    return RolloutPlan(start=start, slots=free, message=message)


def canaries(wanted: Canary, views: Iterable[NodeView]) -> list[NodeView]:
    """The nodes that are upgraded first. A node with the skip label cannot be one: the others would wait for ever."""
    nodes = sorted((view for view in views if not view.skipped), key=lambda view: view.name)
    if wanted.node_selector:
        return [view for view in nodes if selects(wanted.node_selector, view.labels)]
    return nodes[: wanted.nodes]


def free_slots(
    *, total: int, required: int, in_progress: int, unavailable: int, parallel: int, max_unavailable: int
) -> int:
    """How many nodes that are in service may be taken out of it now.

    `parallel` limits the nodes in progress; 0 means no limit. `max_unavailable` limits the nodes out of service, for
    whatever reason; a limit as large as the whole is none.
    """
    if unavailable >= max_unavailable:
        return 0
    free = min(free_parallel_slots(required=required, in_progress=in_progress, parallel=parallel), max_unavailable)
    return min(free, max_unavailable - unavailable) if max_unavailable < total else free


def free_parallel_slots(*, required: int, in_progress: int, parallel: int) -> int:
    """How many nodes may start as far as `maxParallelUpgrades` goes, which is the only limit for a node that is out of
    service already."""
    return min(required, max(parallel - in_progress, 0)) if parallel else required


def scaled_value(total: int, value: int | str) -> int:
    """`25%` of so many nodes, rounded up, or simply a number; 0 for what is neither."""
    text = str(value).strip()
    if _SHARE.fullmatch(text) is None:
        return 0
    return math.ceil(total * int(text[:-1]) / 100) if text.endswith("%") else int(text)


def _canaries_first(
    wanted: Canary | None, views: Sequence[NodeView], now: float, policy: UpgradePolicy
) -> tuple[AbstractSet[str] | None, str]:
    """The nodes that may start, None for all, and why the others wait.

    The label of a canary alone does not say that it is done: it may not have been changed yet for a new driver.
    """
    chosen = canaries(wanted, views) if wanted is not None else []
    failed = [view.name for view in chosen if view.state is UpgradeState.FAILED]
    if failed:
        return frozenset(), f"stopped: the upgrade failed on {_names(failed)}, which goes first"
    undone = [
        view.name
        for view in chosen
        if view.state is not UpgradeState.DONE or isinstance(step(view, policy, now), NodePatch)
    ]
    if undone:
        away = [view.name for view in chosen if view.name in undone and not view.ready]
        return frozenset(undone), f"{_names(undone)} goes first{f', but {_names(away)} is not ready' if away else ''}"
    return None, ""


def _first_action(view: NodeView, policy: UpgradePolicy, now: float) -> NodePatch | None:
    """What the node would do if it got a slot; None if it could not start."""
    found = step(msgspec.structs.replace(view, slot_granted=True), policy, now)
    starts = {UpgradeState.CORDON_REQUIRED, UpgradeState.POD_RESTART_REQUIRED}
    return found if isinstance(found, NodePatch) and found.state in starts else None


def _stopped_reason(policy: UpgradePolicy, views: Sequence[NodeView]) -> str:
    """Why no node may start, whichever it is."""
    if policy.paused:
        return "paused: no further node begins"
    if _SHARE.fullmatch(str(policy.max_unavailable).strip()) is None:
        return (
            f"stopped: maxUnavailable of the upgrade policy is {policy.max_unavailable}; write a number of nodes, "
            "or a part of all such as 25%"
        )
    wanted = policy.canary
    if wanted is not None and wanted.node_selector and not canaries(wanted, views):
        labels = ",".join(f"{name}={value}" for name, value in sorted(wanted.node_selector.items()))
        return (
            f"stopped: canary.nodeSelector of the upgrade policy, {labels}, selects none of the nodes that may be "
            "upgraded; label those that go first, or remove the canary"
        )
    return policy_problem(policy) or ""


def _no_candidate_reason(waiting: Sequence[NodeView]) -> str:
    """Why no node can start although some need an upgrade."""
    for why, nodes in (
        ("not ready", [view.name for view in waiting if not view.skipped and not view.ready]),
        ("without a driver pod", [view.name for view in waiting if not view.skipped and not view.drivers]),
        (
            "without a DaemonSet that would bring a driver",
            [view.name for view in waiting if not view.skipped and view.without_successor],
        ),
        *(
            (
                f"without the Secret {secret}, which their driver needs",
                [view.name for view in waiting if not view.skipped and view.missing_secret == secret],
            )
            for secret in sorted({view.missing_secret for view in waiting} - {""})
        ),
    ):
        if nodes:
            return f"waiting for nodes that are {why}: {_names(nodes)}"
    return ""


def _full(*, parallel: int, busy: int, unavailable: int, most: int) -> str:
    if parallel:
        return f"{_nodes(unavailable)} out of service, and no more than {most} may be (maxUnavailable)"
    return f"{_nodes(busy)} in progress, and no more may be (maxParallelUpgrades)"


def _nodes(number: int) -> str:
    return counted_are(number, "node")


def _names(nodes: Sequence[str]) -> str:
    found = sorted(nodes)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more
