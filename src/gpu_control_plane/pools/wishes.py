"""Which pool each card of a node should be in, whatever it takes to get there. Pure."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.pools.selection import selects
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.pools.words import Waits
from gpu_control_plane.rules.pool_validation import seniority


class Wish(msgspec.Struct, frozen=True):
    """The pool a card should be in, or why it should be in none."""

    pool: str | None
    waits: Waits | None = None
    approve: bool = False


def wishes(snapshot: Snapshot, cards: Iterable[GPUDevice]) -> dict[str, Wish]:
    """The wish for each card, by its name."""
    cards = tuple(cards)
    return _limited(snapshot, {device.name: _of_card(snapshot, device) for device in cards}, cards)


def withdrawn(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the card is approved for a pool that is being deleted, which waits for that to end."""
    pool = snapshot.pools.get(device.metadata.annotations.get(Annotation.ASSIGNMENT, ""))
    return pool is not None and pool.deleting


def _of_card(snapshot: Snapshot, device: GPUDevice) -> Wish:
    """Where the card should be, as far as the card alone decides it."""
    if device.ignored:
        return Wish(None, Waits.IGNORED)
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    if not approved:
        return _automatic(snapshot, device)
    waits = _refusal(snapshot, device, approved)
    return Wish(None, waits) if waits else Wish(approved)


def _refusal(snapshot: Snapshot, device: GPUDevice, approved: str) -> Waits | None:
    """Why the approved pool cannot have the card, if it cannot."""
    pool = snapshot.pools.get(approved)
    if pool is None:
        return Waits.POOL_NOT_FOUND
    if pool.deleting:
        return Waits.POOL_DELETED
    if approved in snapshot.faults:
        return Waits.POOL_MISCONFIGURED
    return None if _selected(snapshot, pool, device) else _unselected(device, Waits.NOT_SELECTED)


def _unselected(device: GPUDevice, otherwise: Waits) -> Waits:
    """No pool selects a card of which nothing is known yet."""
    return Waits.PROBE if device.status.hardware is None else otherwise


def _automatic(snapshot: Snapshot, device: GPUDevice) -> Wish:
    """The oldest pool that selects the card and approves by itself, if any."""
    open_pools = (pool for pool in snapshot.pools.values() if not pool.deleting and pool.name not in snapshot.faults)
    interested = [pool for pool in sorted(open_pools, key=seniority) if _selected(snapshot, pool, device)]
    if not interested:
        return Wish(None, _unselected(device, Waits.NO_POOL))
    if Annotation.HOLD in device.metadata.annotations:
        return Wish(None, Waits.HELD)
    for pool in interested:
        assignment = pool.spec.assignment
        selector = assignment.auto_approve_selector
        if not assignment.require_annotation or (selector and selector.matches(device.metadata.labels)):
            return Wish(pool.name, approve=True)
    return Wish(None, Waits.APPROVAL)


def _limited(snapshot: Snapshot, wishes: dict[str, Wish], cards: Iterable[GPUDevice]) -> dict[str, Wish]:
    """Wishes within each pool's `maxDevicesPerNode`: cards a pool holds come first, then those of lower address."""
    taken: dict[str, int] = {}
    for device in sorted(cards, key=lambda device: claim_of(device) != wishes[device.name].pool):
        name = wishes[device.name].pool
        selector = snapshot.pools[name].spec.device_selector if name else None
        limit = selector.max_devices_per_node if selector else None
        if name is None or limit is None:
            continue
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > limit:
            wishes[device.name] = Wish(None, Waits.NODE_LIMIT)
    return wishes


def _selected(snapshot: Snapshot, pool: GPUPool, device: GPUDevice) -> bool:
    """While a node is away its labels are unknown; what it was selected by stays true until they are known again."""
    if snapshot.labels is None:
        return claim_of(device) == pool.name
    return selects(pool, device, snapshot.labels)
