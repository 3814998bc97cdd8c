"""The steps of an incremental upgrade, and of its rollback: first capacity, then requests, a little at a time. Pure.

The two clusters never have more than 100 % and one surge of capacity together. Requests go only to capacity that has
been made, and the state of the steps is in the status alone, so an upgrade continues where it was after a crash.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.ray.service import ServedCluster
from gpu_control_plane.ray.service.backend import choose
from gpu_control_plane.ray.service.roles import Roles
from gpu_control_plane.ray.service.snapshot import NO_CLUSTER, ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade_plan import UpgradePlan, candidate

ALL: Final = 100


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster has, in percent."""

    capacity: int
    traffic: int


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the cluster that is to get everything, and of the one that had it."""

    target: Share
    source: Share
    moved: datetime | None = None
    """When requests moved last."""

    @property
    def complete(self) -> bool:
        return self.target == Share(capacity=ALL, traffic=ALL) and self.source == Share(capacity=0, traffic=0)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """How large steps are."""

    surge: int = ALL
    step: int
    interval: timedelta


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The shares from now on, and what the next change of them waits for."""

    shares: Shares
    waits_for: str = ""
    again_in: timedelta | None = None


def plan_incremental(s: Snapshot, roles: Roles, active: ClusterView, pending: ClusterView | None) -> UpgradePlan:
    # The shares of a pending cluster that is gone are not those of the one that comes in its place.
    held = (s.active_status, s.pending_status) if pending is not None else (NO_CLUSTER, NO_CLUSTER)
    shares = [
        Share(
            capacity=_or(each.target_capacity, default),
            traffic=_or(each.traffic_routed_percent, default),
        )
        for each, default in zip(held, (ALL, 0), strict=True)
    ]
    moved = s.pending_status.last_traffic_migrated_time
    target, source = (0, 1) if roles.back else (1, 0)
    views = active, pending
    state = Shares(target=shares[target], source=shares[source], moved=moved)
    taking, giving = views[target], views[source]
    step = next_step(
        state,
        _steps(s),
        target_ready=taking is not None and _has_capacity(taking, state.target),
        gateway_ready=s.gateway.ready,
        now=s.now,
    )
    after = [step.shares.target, step.shares.source]
    ordered = after if roles.back else after[::-1]
    complete = step.shares.complete and taking is not None and taking.ready
    backend = choose(
        s.backend,
        candidate(s, taking, takes_over=complete) if taking is not None else None,
        candidate(s, giving, takes_over=True) if giving is not None else None,
    )
    progress = f"{step.shares.target.traffic} % of requests go to {taking.name if taking else 'the new cluster'}"
    return UpgradePlan(
        active=_share(ordered[0], step.shares),
        pending=_share(ordered[1], step.shares),
        backend=backend,
        complete=complete and backend == (taking.name if taking is not None else ""),
        progress=f"{progress}; waiting for {step.waits_for}" if step.waits_for else progress,
        again_in=step.again_in,
    )


def next_step(  # noqa: PLR0911 - one question after the other
    shares: Shares, steps: Steps, *, target_ready: bool, gateway_ready: bool, now: datetime
) -> Step:
    """The next step, or what it waits for."""
    target, source = shares.target, shares.source
    if shares.complete:
        return Step(shares=shares)
    if not gateway_ready:
        return Step(shares=shares, waits_for="the Gateway and the HTTPRoute to be accepted")
    if not target_ready:
        return Step(shares=shares, waits_for="the applications to run with the capacity that was asked for")
    if target.traffic < target.capacity:
        left = shares.moved + steps.interval - now if shares.moved is not None else timedelta()
        if left > timedelta():
            return Step(shares=shares, waits_for="the interval between two steps", again_in=left)
        traffic = min(target.capacity, target.traffic + steps.step)
        return Step(shares=_with_traffic(shares, traffic, now))
    if target.traffic > target.capacity:
        # After a change of direction the target may have more requests than capacity.
        return Step(shares=_with_capacity(shares, target.traffic, source.capacity))
    if target.capacity + source.capacity <= ALL:
        return Step(shares=_with_capacity(shares, min(ALL, target.capacity + steps.surge), source.capacity))
    return Step(shares=_with_capacity(shares, target.capacity, max(source.traffic, source.capacity - steps.surge, 0)))


def _with_traffic(shares: Shares, traffic: int, now: datetime) -> Shares:
    return Shares(
        target=Share(capacity=shares.target.capacity, traffic=traffic),
        source=Share(capacity=shares.source.capacity, traffic=ALL - traffic),
        moved=now,
    )


def _with_capacity(shares: Shares, target: int, source: int) -> Shares:
    return Shares(
        target=Share(capacity=target, traffic=shares.target.traffic),
        source=Share(capacity=source, traffic=shares.source.traffic),
        moved=shares.moved,
    )


def _has_capacity(view: ClusterView, share: Share) -> bool:
    """Whether a cluster has come to its share. Without replicas it has no ready pod but the head, which may be excluded
    from the Service: then applications that run are enough."""
    if share == Share(capacity=0, traffic=0):
        return not view.deleting and view.applications_run
    return view.ready


def _steps(s: Snapshot) -> Steps:
    strategy = s.service.spec.upgrade_strategy
    options = strategy.cluster_upgrade_options if strategy is not None else None
    if options is None:
        # The type of the strategy has been changed during the upgrade: the rest is done in one step.
        return Steps(surge=ALL, step=ALL, interval=timedelta())
    return Steps(
        surge=_or(options.max_surge_percent, ALL),
        step=_or(options.step_size_percent, ALL),
        interval=timedelta(seconds=_or(options.interval_seconds, 0)),
    )


def _share(share: Share, shares: Shares) -> ServedCluster:
    return ServedCluster(
        target_capacity=share.capacity, traffic_routed_percent=share.traffic, last_traffic_migrated_time=shares.moved
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
