"""What a change leads to, by the very decisions that the controller makes. Pure.

Objects are changed as the API server would change them, pools decide on each node, and the difference is what is told.
Nothing here decides anything about a card.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.actions.plan import CardChange, Edit, Target, UnitChange
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.decide import outlook
from gpu_control_plane.pools.desired_pool import DesiredPool
from gpu_control_plane.pools.maintenance import carried_out
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.rules.pool_validation import faults
from gpu_control_plane.views.fleet import Fleet

_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Where cards end depends on no clock."""

type Ends = Mapping[str, DesiredPool]
"""Where cards end, by their names."""


class Consequences(msgspec.Struct, frozen=True):
    """What differs in the end."""

    cards: tuple[CardChange, ...]
    units: tuple[UnitChange, ...]


class Decided:
    """Where the cards of some nodes end, with the objects of one fleet."""

    def __init__(self, fleet: Fleet, nodes: Collection[str]) -> None:
        self.fleet = fleet
        self.ends: dict[str, DesiredPool] = {}
        self.selected: dict[str, Counter[PendingReason | None]] = defaultdict(Counter)
        """The cards that each pool selects, by the reason why they are not in it; None for those that are."""
        pools = {name: carried_out(pool) for name, pool in fleet.pools.items()}
        wrong = faults(pools.values())
        for node, cards in _by_node(fleet.cards.values(), nodes).items():
            known = fleet.nodes.get(node)
            found = outlook(
                Snapshot(
                    node=node,
                    labels=known.metadata.labels if known is not None else None,
                    state=fleet.states.get(node),
                    devices=tuple(cards),
                    pools=pools,
                    faults=wrong,
                    now=_NO_TIME,
                )
            )
            self.ends |= found.ends
            for pool, counts in found.selected.items():
                self.selected[pool].update(counts)

    def units(self) -> Counter[tuple[str, str]]:
        """The units that cards give where they end, by pool and resource."""
        members: dict[tuple[str, str], list[GPUDevice]] = defaultdict(list)
        for name, end in self.ends.items():
            if end.pool is not None:
                card = self.fleet.cards[name]
                members[end.pool, card.spec.node_name].append(card)
        total: Counter[tuple[str, str]] = Counter()
        for (pool, node), cards in members.items():
            found = node_capacity(carried_out(self.fleet.pools[pool]), node, cards, None)
            for each in found.resources if found is not None else ():
                total[pool, each.name] += each.total
        return total


class Forecast:
    """Some nodes of the fleet as it is, and as it would be with changes."""

    def __init__(self, fleet: Fleet, changed: Fleet, nodes: Collection[str]) -> None:
        self._fleet = fleet
        self._before, self._after = Decided(fleet, nodes), Decided(changed, nodes)

    @property
    def before(self) -> Ends:
        return self._before.ends

    @property
    def after(self) -> Ends:
        return self._after.ends

    def consequences(self) -> Consequences:
        """The cards that end elsewhere, and the units of pools that differ because of them."""
        moved = [name for name, end in self.after.items() if end.pool != self.before[name].pool]
        return Consequences(
            cards=tuple(card_change(self._fleet.cards[name], self.before[name], self.after[name]) for name in moved),
            units=self._unit_changes(),
        )

    def waiting_for(self, pool: str) -> dict[str, int]:
        """The cards that the pool would select and not have, by the reason in one word."""
        counted = self._after.selected.get(pool, Counter())
        return {str(reason): cards for reason, cards in counted.most_common() if reason is not None}

    def _unit_changes(self) -> tuple[UnitChange, ...]:
        """The totals that people see now, and what is added to them and taken from them."""
        gone, come = self._before.units(), self._after.units()
        shown = {
            (pool.name, capacity.name): capacity.total
            for pool in self._fleet.pools.values()
            for capacity in pool.status.capacity
        }
        return tuple(
            UnitChange(pool=pool, resource=resource, before=now, after=max(0, now + come[key] - gone[key]))
            for key in sorted(gone.keys() | come.keys())
            if come[key] != gone[key]
            for (pool, resource), now in ((key, shown.get(key, 0)),)
        )


def card_change(card: GPUDevice, before: DesiredPool, after: DesiredPool) -> CardChange:
    """What the card's end differs in."""
    claim = claim_of(card)
    leaves = claim is not None and claim != after.pool
    return CardChange(
        card=card.name,
        node=card.spec.node_name,
        product=card.status.hardware.product if card.status.hardware is not None else None,
        before=claim or before.pool,
        after=after.pool,
        reason=str(after.pending) if after.pending is not None else None,
        because=after.pending.because if after.pending is not None else None,
        held_by=holders(card) if leaves else (),
    )


def holders(card: GPUDevice) -> tuple[str, ...]:
    """The pods that hold units of the card, as namespace/pod."""
    return tuple(sorted({f"{user.namespace}/{user.pod}" for user in card.status.used_by}))


def with_edits(fleet: Fleet, edits: Iterable[Edit]) -> Fleet:
    """The fleet once the annotations and labels of these cards are written."""
    cards = dict(fleet.cards)
    for edit in edits:
        if edit.target is Target.CARD:
            card = cards[edit.name]
            cards[edit.name] = msgspec.structs.replace(card, metadata=_edited(card.metadata, edit))
    return msgspec.structs.replace(fleet, cards=cards)


def with_pools(fleet: Fleet, pools: Iterable[GPUPool]) -> Fleet:
    """The fleet once these pools are written."""
    return msgspec.structs.replace(fleet, pools={**fleet.pools, **{pool.name: pool for pool in pools}})


def _edited(metadata: ObjectMeta, edit: Edit) -> ObjectMeta:
    return msgspec.structs.replace(
        metadata,
        annotations=_merged(metadata.annotations, edit.annotations),
        labels=_merged(metadata.labels, edit.labels),
    )


def _merged(held: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**held, **patch}.items() if value is not None}


def _by_node(cards: Iterable[GPUDevice], nodes: Collection[str]) -> dict[str, list[GPUDevice]]:
    found: dict[str, list[GPUDevice]] = defaultdict(list)
    for card in cards:
        if card.spec.node_name in nodes and not card.deleting:
            found[card.spec.node_name].append(card)
    return found
