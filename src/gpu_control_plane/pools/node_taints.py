"""Which taints a Node gets from the pools that have cards in it, and which it loses. Pure.

Which taints are ours is recorded in the status of the GPUNodeState, before the Node is written, and forgotten after
the taint is gone. So a taint that a person has set is never taken for one of ours, and one of ours never stays behind.
"""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api import node as nodes
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.scheduling import Taint
from gpu_control_plane.rules.pool_validation import by_age


class TaintPlan(msgspec.Struct, frozen=True):
    """What should be written, the record first."""

    recorded: tuple[Taint, ...]
    """The taints of the Node that are ours, or are about to be."""
    on_node: tuple[nodes.Taint, ...]
    """All taints of the Node."""


def wanted_taints(pools: Iterable[GPUPool]) -> tuple[Taint, ...]:
    """The taints of these pools. A Node has one of a key and an effect: of two the older pool's."""
    found: dict[tuple[str, str], Taint] = {}
    for pool in sorted(pools, key=by_age):
        for taint in pool.spec.scheduling.taints:
            found.setdefault((taint.key, taint.effect), taint)
    return tuple(found.values())


def plan_taints(on_node: tuple[nodes.Taint, ...], recorded: tuple[Taint, ...], wanted: Iterable[Taint]) -> TaintPlan:
    """What brings the Node from its taints to those wanted, without touching the taints of others."""
    ours = {_identity(taint) for taint in recorded}
    others = tuple(taint for taint in on_node if _identity(taint) not in ours)
    taken = {(taint.key, taint.effect) for taint in others}
    setting = [taint for taint in wanted if (taint.key, str(taint.effect)) not in taken]
    wanted_now = {_identity(taint) for taint in setting}
    present = {_identity(taint) for taint in on_node}
    leaving = [taint for taint in recorded if _identity(taint) in present and _identity(taint) not in wanted_now]
    kept = [taint for taint in on_node if taint in others or _identity(taint) in wanted_now]
    held = {_identity(taint) for taint in kept}
    added = [
        nodes.Taint(key=taint.key, value=taint.value or "", effect=str(taint.effect))
        for taint in setting
        if _identity(taint) not in held
    ]
    record = sorted((*setting, *leaving), key=_identity)
    return TaintPlan(recorded=tuple(record), on_node=(*kept, *added))


def _identity(taint: Taint | nodes.Taint) -> tuple[str, str, str]:
    """A taint whose value somebody has changed is that person's."""
    return taint.key, str(taint.effect), taint.value or ""
