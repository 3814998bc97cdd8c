"""What would change if a pool were written like this, by the decisions that would be made afterwards. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from gpu_control_plane.actions.card_plan import unreadable
from gpu_control_plane.actions.forecast import Forecast, with_pools
from gpu_control_plane.actions.plan import CardChange, Refusal, UnitChange, command_line
from gpu_control_plane.actions.pool_maintenance import UnitsInTheWay, units_in_the_way
from gpu_control_plane.api.gpupool import GPUPool, MaintenanceStrategy, PoolStatus
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.pools.maintenance import is_changing, serves_meanwhile
from gpu_control_plane.pools.quotas import desired_limits
from gpu_control_plane.rules.pool_access import admits_nobody
from gpu_control_plane.rules.pool_validation import new_fault, youngest
from gpu_control_plane.views.fleet import Fleet


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The limit of a namespace for a resource; None for none."""

    namespace: str
    resource: str
    before: int | None
    after: int | None
    held: int = 0
    """Units that its pods have now: those beyond the limit go on, and new ones are refused."""


class AccessChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may use the pool: what `spec.access` names more and less."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    nobody: bool = False
    """Whether it names nobody at all."""


class MaintenanceAhead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Cards would be divided anew."""

    before: str
    after: str
    strategy: MaintenanceStrategy
    serves_meanwhile: bool
    in_the_way: tuple[UnitsInTheWay, ...] = ()


class Preview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What writing a pool leads to."""

    pool: str
    new: bool
    command: str
    refusals: tuple[Refusal, ...] = ()
    cards: tuple[CardChange, ...] = ()
    units: tuple[UnitChange, ...] = ()
    waiting: Mapping[str, int] = {}
    """Cards that the pool selects and would not have, by reason."""
    quotas: tuple[QuotaChange, ...] = ()
    access: AccessChange = AccessChange()
    maintenance: MaintenanceAhead | None = None

    @property
    def changes_nothing(self) -> bool:
        access = self.access.added or self.access.removed
        return not (self.cards or self.units or self.quotas or access or self.maintenance)


def preview_pool(fleet: Fleet, written: GPUPool, *, file: str = "pool.yaml") -> Preview:
    """What would change if the pool were written with this spec; `written` is as the file has it."""
    before = fleet.pools.get(written.name)
    command = command_line("preview", "-f", file)
    named = Preview(pool=written.name, new=before is None, command=command)
    if (unread := unreadable(fleet)) is not None:
        return msgspec.structs.replace(named, refusals=(Refusal(name=written.name, sentence=unread),))
    pool = as_written(fleet, written)
    fault = new_fault(pool, before, fleet.pools.values())
    changed = with_pools(fleet, (pool,))
    forecast = Forecast(fleet, changed, {card.spec.node_name for card in fleet.cards.values()})
    found = forecast.consequences()
    return msgspec.structs.replace(
        named,
        refusals=(Refusal(name=pool.name, sentence=fault.message),) if fault is not None else (),
        cards=found.cards,
        units=found.units,
        waiting=forecast.waiting_for(pool.name),
        quotas=_quotas(fleet, before, pool),
        access=_access(before, pool),
        maintenance=_maintenance(fleet, pool),
    )


def as_written(fleet: Fleet, written: GPUPool) -> GPUPool:
    """The pool as the API server would have it: its spec is the file's, its status stays, a new one is the youngest."""
    before = fleet.pools.get(written.name)
    if before is None:
        bare = msgspec.structs.replace(written, metadata=ObjectMeta(name=written.name), status=PoolStatus())
        return youngest(bare, fleet.pools.values())
    return msgspec.structs.replace(before, spec=written.spec)


def _maintenance(fleet: Fleet, pool: GPUPool) -> MaintenanceAhead | None:
    if not is_changing(pool):
        return None
    return MaintenanceAhead(
        before=str(pool.allocation),
        after=str(pool.spec.allocation.canonical),
        strategy=pool.spec.maintenance.strategy,
        serves_meanwhile=serves_meanwhile(pool),
        in_the_way=units_in_the_way(fleet, pool),
    )


def _quotas(fleet: Fleet, before: GPUPool | None, pool: GPUPool) -> tuple[QuotaChange, ...]:
    pools = (before, pool) if before is not None else (pool,)
    namespaces = sorted({quota.namespace for each in pools for quota in each.spec.quotas})
    held: Counter[tuple[str, str]] = Counter()
    for card in fleet.cards.values():
        for user in card.status.used_by:
            held[user.namespace, user.resource] += user.units
    changes = []
    for namespace in namespaces:
        was, will = _limits(before, namespace), _limits(pool, namespace)
        for resource in sorted(was.keys() | will.keys()):
            limits = was.get(resource), will.get(resource)
            units = held[namespace, resource]
            exceeded = limits[1] is not None and units > limits[1]
            if limits[0] != limits[1] or exceeded:
                changes.append(
                    QuotaChange(namespace=namespace, resource=resource, before=limits[0], after=limits[1], held=units)
                )
    return tuple(changes)


def _limits(pool: GPUPool | None, namespace: str) -> dict[str, int]:
    limits = desired_limits(pool, namespace) if pool is not None else None
    return {key.removeprefix("requests."): int(parse_quantity(value)) for key, value in (limits or {}).items()}


def _access(before: GPUPool | None, pool: GPUPool) -> AccessChange:
    was, will = _admitted(before), _admitted(pool)
    return AccessChange(
        added=tuple(each for each in will if each not in was),
        removed=tuple(each for each in was if each not in will),
        nobody=admits_nobody(pool),
    )


def _admitted(pool: GPUPool | None) -> Sequence[str]:
    """Whom `spec.access` names, each as a person says it."""
    access = pool.spec.access if pool is not None else None
    if access is None:
        return ()
    selector = access.namespace_selector
    selected = msgspec.json.encode(selector).decode() if selector is not None else None
    return (
        *(f"namespace {name}" for name in access.namespaces),
        *((f"namespaces with labels {selected}" if selected != "{}" else "every namespace",) if selected else ()),
        *(f"service account {account.namespace}/{account.name}" for account in access.service_accounts),
        *(f"user {name}" for name in access.users),
        *(f"group {name}" for name in access.groups),
    )
