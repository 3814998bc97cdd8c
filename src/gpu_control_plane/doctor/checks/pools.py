"""What is the matter with pools: their conditions, and what no condition says."""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import PoolCondition, Reason
from gpu_control_plane.doctor.check import Check, Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Severity, command_in, of_condition, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.sentences import counted

STUCK_AFTER: Final = timedelta(hours=1)
"""How long a pool may take to go before that is a finding."""


def _explain(pool: GPUPool) -> str:
    return f"kubectl gpu explain pool {pool.name}"


def _edit(pool: GPUPool) -> str:
    return f"kubectl edit gpupool {pool.name}"


def _condition_check(
    name: str,
    title: str,
    severity: Severity,
    kind: PoolCondition,
    *,
    only: Collection[Reason] = (),
    but: Collection[Reason] = (),
    edit: bool = False,
) -> Check:
    """A check that passes on what a condition of the pool says with these reasons; without any, when it is False."""

    @check(name, title, Group.POOLS, severity, Source.POOLS)
    def look(snapshot: Snapshot) -> Iterator[Found]:
        for pool in snapshot.pools:
            said = find(pool.status.conditions, kind)
            if said is None or said.reason in but:
                continue
            if said.reason not in only if only else said.status != "False":
                continue
            yield Found(
                about=f"pool {pool.name}",
                sentence=said.message or kind.meaning,
                evidence=of_condition(pool, said),
                fix=command_in(said.message, _edit(pool) if edit else _explain(pool)),
            )

    return look


pool_misconfigured = _condition_check(
    "pool-misconfigured",
    "A pool cannot be carried out",
    Severity.WARNING,
    PoolCondition.CONFIGURED,
    but={Reason.NAME_COLLISION},
    edit=True,
)
pool_name_collision = _condition_check(
    "pool-name-collision",
    "Two pools have one resource name",
    Severity.WARNING,
    PoolCondition.CONFIGURED,
    only={Reason.NAME_COLLISION},
    edit=True,
)
pool_nobody_admitted = _condition_check(
    "pool-nobody-admitted",
    "Nobody may use a pool",
    Severity.WARNING,
    PoolCondition.ACCESSIBLE,
    edit=True,
)
pool_unguarded = _condition_check(
    "pool-unguarded", "Everybody may use a pool", Severity.CRITICAL, PoolCondition.GUARDED
)
pool_quota_not_kept = _condition_check(
    "pool-quota-not-kept",
    "A quota of a pool does not hold, or is exceeded",
    Severity.WARNING,
    PoolCondition.QUOTAS_HOLD,
    only={Reason.QUOTA_NOT_WRITTEN, Reason.OVER_QUOTA},
    edit=True,
)
pool_quota_without_namespace = _condition_check(
    "pool-quota-without-namespace",
    "A quota of a pool names a namespace that does not exist",
    Severity.INFO,
    PoolCondition.QUOTAS_HOLD,
    only={Reason.NAMESPACE_NOT_FOUND},
    edit=True,
)
pool_maintenance_overdue = _condition_check(
    "pool-maintenance-overdue",
    "The cards of a pool are not divided anew in time",
    Severity.WARNING,
    PoolCondition.IN_MAINTENANCE,
    only={Reason.MAINTENANCE_OVERDUE},
)
pool_not_offered = _condition_check(
    "pool-not-offered",
    "A pool has cards and no node offers one",
    Severity.WARNING,
    PoolCondition.READY,
    only={Reason.NOT_OFFERED},
)


@check("pool-selects-nothing", "A pool selects no card", Group.POOLS, Severity.WARNING, Source.POOLS)
def pool_selects_nothing(snapshot: Snapshot) -> Iterator[Found]:
    for pool in snapshot.pools:
        cards = pool.status.cards
        if cards is not None and cards.selected == 0 and not pool.deleting:
            yield Found(
                about=f"pool {pool.name}",
                sentence="spec.deviceSelector selects no card of the cluster.",
                evidence=Evidence(reference(pool), "status.cards.selected", "0"),
                fix=_edit(pool),
            )


@check("pool-quota-too-high", "A quota is more than its pool has", Group.POOLS, Severity.INFO, Source.POOLS)
def pool_quota_too_high(snapshot: Snapshot) -> Iterator[Found]:
    for pool in snapshot.pools:
        total = pool.status.units.total if pool.status.units is not None else 0
        over = [quota for quota in pool.spec.quotas if quota.units is not None and quota.units > total]
        if total and over:
            quota = over[0]
            more = f" (and {len(over) - 1} more)" if len(over) > 1 else ""
            yield Found(
                about=f"pool {pool.name}",
                sentence=f"{quota.namespace}{more} may hold {quota.units} of {counted(total, 'unit')}: the quota keeps "
                "nothing for others.",
                evidence=Evidence(reference(pool), f"spec.quotas[{quota.namespace}].units", str(quota.units)),
                fix=_edit(pool),
            )


@check(
    "pool-not-observed",
    "The controller has not looked at a pool",
    Group.POOLS,
    Severity.WARNING,
    Source.POOLS,
    settles=True,
)
def pool_not_observed(snapshot: Snapshot) -> Iterator[Found]:
    for pool in snapshot.pools:
        seen, wanted = pool.status.observed_generation or 0, pool.metadata.generation
        if seen < wanted:
            yield Found(
                about=f"pool {pool.name}",
                sentence="Its spec has changed and no controller has acted on it.",
                evidence=Evidence(reference(pool), "status.observedGeneration", f"{seen} of {wanted}"),
                fix="kubectl gpu doctor --only controller-no-leader",
            )


@check("pool-not-deleted", "A pool does not go", Group.POOLS, Severity.WARNING, Source.POOLS)
def pool_not_deleted(snapshot: Snapshot) -> Iterator[Found]:
    for pool in snapshot.pools:
        since = pool.metadata.deletion_timestamp
        if since is None or snapshot.now - since < STUCK_AFTER:
            continue
        used = pool.status.units.used if pool.status.units is not None else 0
        yield Found(
            about=f"pool {pool.name}",
            sentence=f"It is to be deleted and waits for its cards: pods hold {counted(used, 'unit')}.",
            evidence=Evidence(reference(pool), "metadata.deletionTimestamp", since.isoformat()),
            fix=_explain(pool),
        )
