"""What a person sees of a pool's maintenance, and can do about it: confirm a layout, take the change back, give it more
time, or go node by node. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches

import msgspec

from gpu_control_plane.actions.plan import Edit, Plan, Refusal, command_line
from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool, MaintenanceStrategy
from gpu_control_plane.api.names import Annotation, PoolCondition
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.maintenance import is_changing, is_overdue, message
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.snapshot import claim_of
from gpu_control_plane.pools.status import awaits_confirmation
from gpu_control_plane.views.fleet import Fleet


class UnitsInTheWay(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that maintenance waits for, and what it holds."""

    node: str
    pod: str
    card: str
    units: int


class MaintenanceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a pool stands."""

    pool: str
    allocation: str
    """How its cards are divided now."""
    target: str | None = None
    """How they are to be divided, while that differs."""
    strategy: MaintenanceStrategy = MaintenanceStrategy.POOL
    sentence: str = ""
    since: datetime | None = None
    deadline: datetime | None = None
    overdue: bool = False
    nodes_done: int = 0
    nodes_total: int = 0
    node: str | None = None
    """Whose turn it is, with the strategy Node."""
    in_the_way: tuple[UnitsInTheWay, ...] = ()
    awaits_confirmation: bool = False
    problem: str | None = None
    """Why the spec is not carried out, if something is wrong."""


def view_maintenance(fleet: Fleet, pool: GPUPool, now: datetime) -> MaintenanceView:
    """Where the pool stands, and who is in its way."""
    known, changing = pool.status.maintenance, is_changing(pool)
    configured = find(pool.status.conditions, PoolCondition.CONFIGURED)
    wrong = configured.message if configured is not None and configured.status == FALSE else None
    target = pool.spec.allocation.canonical
    begins = f"{pool.allocation} → {target}: about to begin" if changing else "none is under way"
    return MaintenanceView(
        pool=pool.name,
        allocation=str(pool.allocation),
        target=str(target) if changing else None,
        strategy=pool.spec.maintenance.strategy,
        sentence=message(known) if known is not None else begins,
        since=known.since if known is not None else None,
        deadline=known.deadline if known is not None else None,
        overdue=known is not None and is_overdue(known, now),
        nodes_done=known.nodes_done if known is not None else 0,
        nodes_total=known.nodes_total if known is not None else 0,
        node=known.node if known is not None else None,
        in_the_way=units_in_the_way(fleet, pool) if changing else (),
        awaits_confirmation=awaits_confirmation(pool),
        problem=wrong,
    )


def units_in_the_way(fleet: Fleet, pool: GPUPool) -> tuple[UnitsInTheWay, ...]:
    """The pods on nodes that do not offer the pool's cards yet as its spec asks: they have to end first."""
    cards: dict[str, list[GPUDevice]] = defaultdict(list)
    for card in fleet.cards.values():
        if claim_of(card) == pool.name:
            cards[card.spec.node_name].append(card)
    capacity = PoolCapacity()
    for node, held in cards.items():
        capacity.put(node, node_capacity(pool, node, held, fleet.states.get(node)))
    return tuple(
        UnitsInTheWay(node=node, pod=f"{user.namespace}/{user.pod}", card=card.name, units=user.units)
        for node in sorted(capacity.nodes_without(pool.spec.allocation.canonical))
        for card in sorted(cards[node], key=lambda card: card.spec.pci_address)
        for user in card.status.used_by
    )


def plan_confirm_layout(fleet: Fleet, name: str) -> Plan:
    """Say that cards are partitioned as ordered again, after `LayoutMismatch`."""
    command = command_line("maintenance", name, confirm_layout=True)
    pool = fleet.pools.get(name)
    if pool is None:
        return Plan(command=command, refusals=(_absent(fleet, name),))
    if not awaits_confirmation(pool):
        sentence = f"no layout of it waits for a confirmation: {command_line('explain', 'pool', name)}"
        return Plan(command=command, refusals=(Refusal(name=name, sentence=sentence),))
    return Plan(command=command, edits=(Edit.of_pool(pool, annotations={Annotation.CONFIRM_LAYOUT: "yes"}),))


def plan_maintenance(
    fleet: Fleet,
    name: str,
    *,
    revert: bool = False,
    strategy: MaintenanceStrategy | None = None,
    deadline: str | None = None,
) -> Plan:
    """Take the change of the allocation back, or change how it is carried out."""
    given = {"strategy": str(strategy) if strategy is not None else None, "deadline": deadline}
    command = command_line("maintenance", name, revert=revert, **given)
    pool = fleet.pools.get(name)
    if pool is None:
        return Plan(command=command, refusals=(_absent(fleet, name),))
    if revert and not is_changing(pool):
        sentence = f"its cards are divided as its spec says: {pool.allocation}"
        return Plan(command=command, refusals=(Refusal(name=name, sentence=sentence),))
    held = {"strategy": str(pool.spec.maintenance.strategy), "deadline": pool.spec.maintenance.deadline}
    changed = {key: value for key, value in given.items() if value is not None and value != held[key]}
    spec: dict[str, object] = {"maintenance": changed} if changed else {}
    if revert:
        spec["allocation"] = _patch(pool.allocation)
    if not spec:
        return Plan(command=command, unchanged=(name,))
    notes = (f"spec.allocation becomes {pool.allocation} again: nodes keep what they have",) if revert else ()
    kept = "the spec of the pool is changed; where a repository is applied, change it there, too"
    return Plan(command=command, edits=(Edit.of_pool(pool, spec=spec),), notes=(*notes, kept))


def _patch(allocation: Allocation) -> Mapping[str, object]:
    """The allocation as a merge patch: what it does not have is taken off."""
    mig, turns = allocation.mig, allocation.time_slice
    return {
        "mode": str(allocation.mode),
        "mig": {"profile": mig.profile, "layout": msgspec.to_builtins(mig.layout) or None} if mig is not None else None,
        "timeSlice": msgspec.to_builtins(turns) if turns is not None else None,
    }


def _absent(fleet: Fleet, name: str) -> Refusal:
    close = get_close_matches(name, fleet.pools, n=1)
    hint = f"; did you mean {close[0]}?" if close else ": see kubectl gpu pools"
    return Refusal(name=name, sentence=f"there is no pool {name}{hint}", absent=True)
