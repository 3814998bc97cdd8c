"""Which pool each card of a node should be in, whatever it takes to get there. Pure.

Of several pools that would take a card by themselves, the oldest one that has room on the node gets it. Cards that a
pool holds come first, then those that a person approved, then the rest, each in the order of their addresses. So the
same objects always lead to the same pools.
"""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation, DeviceCondition
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.pools.burnin import burn_in_pending
from gpu_control_plane.pools.maintenance import is_in_turn
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.pools.units import is_suitable
from gpu_control_plane.rules.device_selection import selects
from gpu_control_plane.rules.pool_validation import by_age


class DesiredPool(msgspec.Struct, frozen=True):
    """The pool a card should be in, or why it should be in none."""

    pool: str | None
    pending: PendingReason | None = None
    approve: bool = False


class NodeSelection:
    """Which pools select which cards of a node. Cards of one model get the same answer from most pools."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        pools = sorted(snapshot.pools.values(), key=by_age)
        self._by_model = [pool for pool in pools if not _by_name(pool)]
        self._by_name = [pool for pool in pools if _by_name(pool)]
        self._answers: dict[object, tuple[GPUPool, ...]] = {}

    def pools(self, device: GPUDevice) -> tuple[GPUPool, ...]:
        """The pools that select the card, the oldest first."""
        model = _model(device), claim_of(device) if self._snapshot.labels is None else None
        if model not in self._answers:
            self._answers[model] = tuple(pool for pool in self._by_model if self.has(pool, device))
        named = [pool for pool in self._by_name if self.has(pool, device)]
        return tuple(sorted((*self._answers[model], *named), key=by_age)) if named else self._answers[model]

    def has(self, pool: GPUPool, device: GPUDevice) -> bool:
        """Whether the pool selects the card. While the Node is gone its labels are unknown: a card then counts as
        selected by the pool that holds it."""
        if self._snapshot.labels is None:
            return claim_of(device) == pool.name
        return selects(pool, device, self._snapshot.labels)


def desired_pools(
    snapshot: Snapshot, cards: Iterable[GPUDevice], selection: NodeSelection | None = None
) -> dict[str, DesiredPool]:
    """The desired pool of each card, by the name of its GPUDevice."""
    return _Choice(snapshot, selection or NodeSelection(snapshot)).of(tuple(cards))


def is_approval_withdrawn(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the card is approved for a pool that is being deleted: the pool stays until the approval is gone."""
    pool = snapshot.pools.get(_approval(device) or "")
    return pool is not None and pool.deleting


def suits(pool: GPUPool, device: GPUDevice) -> bool:
    """Whether the card can be divided as the pool asks: one that it holds as nodes are ordered now, another as its
    spec says."""
    if pool.allocation.mode is not Mode.MIG and pool.spec.allocation.mode is not Mode.MIG:
        return True
    held = claim_of(device) == pool.name and not is_in_turn(pool, device.spec.node_name)
    allocation = pool.allocation if held else pool.spec.allocation.canonical
    return is_suitable(allocation, device.status.hardware)


def is_faulted(device: GPUDevice) -> bool:
    health = find(device.status.conditions, DeviceCondition.HEALTHY)
    return health is not None and health.status == FALSE


class _Choice:
    """Gives the cards of a node to pools, one after the other, within each pool's `maxDevicesPerNode`."""

    def __init__(self, snapshot: Snapshot, selection: NodeSelection) -> None:
        self._snapshot = snapshot
        self._selection = selection
        self._taken: dict[str, int] = {}

    def of(self, cards: tuple[GPUDevice, ...]) -> dict[str, DesiredPool]:
        def turn(device: GPUDevice) -> tuple[bool, bool]:
            approved = _approval(device)
            return approved is None, approved is None or claim_of(device) != approved

        chosen = {device.name: self._of_card(device) for device in sorted(cards, key=turn)}
        return {device.name: chosen[device.name] for device in cards}

    def _of_card(self, device: GPUDevice) -> DesiredPool:
        if device.ignored:
            return DesiredPool(None, PendingReason.IGNORED)
        approved = _approval(device)
        if approved is None:
            return self._automatic(device)
        refused = self._refusal(device, approved)
        if refused is not None:
            return DesiredPool(None, refused)
        self._take(self._snapshot.pools[approved])
        return DesiredPool(approved)

    def _refusal(self, device: GPUDevice, approved: str) -> PendingReason | None:
        """Why the approved pool cannot have the card, if it cannot."""
        pool = self._snapshot.pools.get(approved)
        if pool is None:
            return PendingReason.POOL_NOT_FOUND
        if pool.deleting:
            return PendingReason.POOL_DELETED
        if approved in self._snapshot.faults:
            return PendingReason.POOL_MISCONFIGURED
        return self._unfit(device, pool)

    def _unfit(self, device: GPUDevice, pool: GPUPool) -> PendingReason | None:
        """Why the card is none that the pool takes."""
        if not self._selection.has(pool, device):
            return _unselected(device, PendingReason.NOT_SELECTED)
        if not suits(pool, device):
            return PendingReason.MODE_UNSUPPORTED
        if claim_of(device) != pool.name and (broken := _broken(device)):
            return broken  # It takes no room from cards that work.
        return None if self._has_room(pool) else PendingReason.NODE_LIMIT

    def _automatic(self, device: GPUDevice) -> DesiredPool:
        """The oldest pool with room that selects the card and approves cards by itself, if any."""
        faults = self._snapshot.faults
        selecting = [pool for pool in self._selection.pools(device) if not pool.deleting and pool.name not in faults]
        if not selecting:
            return DesiredPool(None, _unselected(device, PendingReason.NO_POOL))
        suitable = [pool for pool in selecting if suits(pool, device)]
        if not suitable:
            return DesiredPool(None, PendingReason.MODE_UNSUPPORTED)
        if Annotation.HOLD in device.metadata.annotations:
            return DesiredPool(None, PendingReason.HELD)
        if claim_of(device) is None and (broken := _broken(device)):
            return DesiredPool(None, broken)
        roomy = [pool for pool in suitable if self._has_room(pool)]
        for pool in roomy:
            assignment = pool.spec.assignment
            selector = assignment.auto_approve_selector
            if not assignment.require_annotation or (selector and selector.matches(device.metadata.labels)):
                self._take(pool)
                return DesiredPool(pool.name, approve=True)
        return DesiredPool(None, PendingReason.APPROVAL if roomy else PendingReason.NODE_LIMIT)

    def _has_room(self, pool: GPUPool) -> bool:
        selector = pool.spec.device_selector
        limit = selector.max_devices_per_node if selector else None
        return limit is None or self._taken.get(pool.name, 0) < limit

    def _take(self, pool: GPUPool) -> None:
        self._taken[pool.name] = self._taken.get(pool.name, 0) + 1


def _approval(device: GPUDevice) -> str | None:
    return device.metadata.annotations.get(Annotation.ASSIGNMENT) or None


def _broken(device: GPUDevice) -> PendingReason | None:
    """Why the card itself keeps out of every pool."""
    if find(device.status.conditions, DeviceCondition.HEALTHY) is None:
        return PendingReason.PROBE
    if is_faulted(device):
        return PendingReason.HEALTH
    failed = burn_in_pending(device) is PendingReason.BURN_IN_FAILED
    return PendingReason.BURN_IN_FAILED if failed else None


def _unselected(device: GPUDevice, otherwise: PendingReason) -> PendingReason:
    """No pool selects a card of which nothing is known yet."""
    return PendingReason.PROBE if device.status.hardware is None else otherwise


def _by_name(pool: GPUPool) -> bool:
    """Whether the pool selects single cards by their names."""
    selector = pool.spec.device_selector
    criteria = (selector.include, selector.exclude) if selector else ()
    return any(each is not None and each.inventory_ids for each in criteria)


def _model(device: GPUDevice) -> tuple[object, ...]:
    """What selectors look at, besides the card's name."""
    hardware = device.status.hardware
    if hardware is None:
        return ()
    mig_capable = hardware.mig is not None and hardware.mig.capable
    return hardware.vendor, hardware.product, hardware.memory_mib, hardware.compute_capability, mig_capable
