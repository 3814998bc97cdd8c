"""Which pool each card of a node should be in, whatever it takes to get there. Pure."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.selection import selects
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.rules.pool_validation import by_age


class DesiredPool(msgspec.Struct, frozen=True):
    """The pool a card should be in, or why it should be in none."""

    pool: str | None
    pending: PendingReason | None = None
    approve: bool = False


def desired_pools(snapshot: Snapshot, cards: Iterable[GPUDevice]) -> dict[str, DesiredPool]:
    """The desired pool of each card, by the name of its GPUDevice."""
    cards = tuple(cards)
    return _limited(snapshot, {device.name: _of_card(snapshot, device) for device in cards}, cards)


def is_approval_withdrawn(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the card is approved for a pool that is being deleted: the pool stays until the approval is gone."""
    pool = snapshot.pools.get(device.metadata.annotations.get(Annotation.ASSIGNMENT, ""))
    return pool is not None and pool.deleting


def _of_card(snapshot: Snapshot, device: GPUDevice) -> DesiredPool:
    """Where the card should be, as far as the card alone decides it."""
    if device.ignored:
        return DesiredPool(None, PendingReason.IGNORED)
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    if not approved:
        return _automatic(snapshot, device)
    refused = _refusal(snapshot, device, approved)
    return DesiredPool(None, refused) if refused else DesiredPool(approved)


def _refusal(snapshot: Snapshot, device: GPUDevice, approved: str) -> PendingReason | None:
    """Why the approved pool cannot have the card, if it cannot."""
    pool = snapshot.pools.get(approved)
    if pool is None:
        return PendingReason.POOL_NOT_FOUND
    if pool.deleting:
        return PendingReason.POOL_DELETED
    if approved in snapshot.faults:
        return PendingReason.POOL_MISCONFIGURED
    return None if _selected(snapshot, pool, device) else _unselected(device, PendingReason.NOT_SELECTED)


def _unselected(device: GPUDevice, otherwise: PendingReason) -> PendingReason:
    """No pool selects a card of which nothing is known yet."""
    return PendingReason.PROBE if device.status.hardware is None else otherwise


def _automatic(snapshot: Snapshot, device: GPUDevice) -> DesiredPool:
    """The oldest pool that selects the card and approves cards by itself, if any."""
    usable = (pool for pool in snapshot.pools.values() if not pool.deleting and pool.name not in snapshot.faults)
    selecting = [pool for pool in sorted(usable, key=by_age) if _selected(snapshot, pool, device)]
    if not selecting:
        return DesiredPool(None, _unselected(device, PendingReason.NO_POOL))
    if Annotation.HOLD in device.metadata.annotations:
        return DesiredPool(None, PendingReason.HELD)
    for pool in selecting:
        assignment = pool.spec.assignment
        selector = assignment.auto_approve_selector
        if not assignment.require_annotation or (selector and selector.matches(device.metadata.labels)):
            return DesiredPool(pool.name, approve=True)
    return DesiredPool(None, PendingReason.APPROVAL)


def _limited(snapshot: Snapshot, desired: dict[str, DesiredPool], cards: Iterable[GPUDevice]) -> dict[str, DesiredPool]:
    """The desired pools within each pool's `maxDevicesPerNode`: cards that the pool holds come first, then those with
    lower addresses."""
    taken: dict[str, int] = {}
    for device in sorted(cards, key=lambda device: claim_of(device) != desired[device.name].pool):
        name = desired[device.name].pool
        selector = snapshot.pools[name].spec.device_selector if name else None
        limit = selector.max_devices_per_node if selector else None
        if name is None or limit is None:
            continue
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > limit:
            desired[device.name] = DesiredPool(None, PendingReason.NODE_LIMIT)
    return desired


def _selected(snapshot: Snapshot, pool: GPUPool, device: GPUDevice) -> bool:
    """While the Node is gone its labels are unknown: a card then counts as selected by the pool that holds it."""
    if snapshot.labels is None:
        return claim_of(device) == pool.name
    return selects(pool, device, snapshot.labels)
