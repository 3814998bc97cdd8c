"""Metrics of pools.

Capacity is counted by the leader alone, and its series go with the pool on every replica. Faults and tests follow the
caches, so every replica reports the same; there is one series for each card with a fault, and none for the others.
"""

import contextlib
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpupool import Capacity, GPUPool
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.metrics import CountGauge
from gpu_control_plane.pools.burnin import burn_in_pending
from gpu_control_plane.pools.pending_reasons import PendingReason


class PoolMetrics:
    """Capacity by pool, and cards by state."""

    def __init__(self, registry: CollectorRegistry, pools: Cache[GPUPool]) -> None:
        self._pools = pools
        self._capacity = {
            name: Gauge(
                f"gpupool_capacity_{name}",
                f"Units of a resource of the pool: {meaning}.",
                ("pool", "resource"),
                registry=registry,
            )
            for name, meaning in (
                ("total", "all"),
                ("used", "held by pods"),
                ("reserved", "promised to pods that do not run yet"),
                ("available", "a pod could have now"),
                ("faulted", "on cards with a fault"),
            )
        }
        self._shown: dict[str, frozenset[str]] = {}
        """The resources of each pool that have series."""
        self._unassigned = Gauge("gpu_device_unassigned_total", "Cards in no pool.", registry=registry)
        self._reserved = Gauge(
            "gpu_device_reserved_total",
            "Cards, or parts of cards, promised to pods that do not run yet.",
            registry=registry,
        )
        self._expired = Gauge(
            "gpupool_reservations_expired",
            "Pods that do not start although units were reserved for them, and still are free, until their time was "
            "over.",
            ("pool",),
            registry=registry,
        )
        pools.on_change(self._changed)

    def capacity(self, pool: str, resources: Iterable[Capacity]) -> None:
        """Show the units of a pool's resources, unless the pool has gone while they were counted."""
        if self._pools.get(pool) is None:
            return
        counted = {resource.name: resource for resource in resources}
        self._forget(pool, self._shown.get(pool, frozenset()) - counted.keys())
        self._shown[pool] = frozenset(counted)
        for resource, units in counted.items():
            for name, gauge in self._capacity.items():
                gauge.labels(pool, resource).set(getattr(units, name))

    def cards(self, *, unassigned: int) -> None:
        self._unassigned.set(unassigned)

    def reserved(self, units: int) -> None:
        self._reserved.set(units)

    def reservations(self, pool: str, *, expired: int) -> None:
        if self._pools.get(pool) is not None:
            self._expired.labels(pool).set(expired)

    def _changed(self, old: GPUPool | None, new: GPUPool | None) -> None:
        """A pool may be deleted while another replica leads: its series must go on every replica."""
        if old is not None and new is None:
            self._forget(old.name, self._shown.pop(old.name, frozenset()))
            with contextlib.suppress(KeyError):
                self._expired.remove(old.name)

    def _forget(self, pool: str, resources: Iterable[str]) -> None:
        for resource in resources:
            for gauge in self._capacity.values():
                gauge.remove(pool, resource)


class TroubleMetrics:
    """For alerts: which card has a fault or failed its test, how far tests are, and the phase of each pool."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._faulted = Gauge(
            "gpu_device_faulted",
            "1 for each card that is out of service, with the reason of its condition Healthy.",
            ("node", "device", "reason"),
            registry=registry,
        )
        self._failed = Gauge(
            "gpu_device_burn_in_failed",
            "1 for each card that did not pass its burn-in, with the reason of its condition BurnedIn.",
            ("node", "device", "reason"),
            registry=registry,
        )
        self._tests = CountGauge(
            Gauge(
                "gpu_burn_in_devices",
                "Cards by the reason of their condition BurnedIn: Waiting, BurningIn, Passed, … None without burn-in.",
                ("reason",),
                registry=registry,
            )
        )
        self._phase = Gauge("gpupool_phase", "1 for the phase that a pool is in.", ("pool", "phase"), registry=registry)

        self._deadline = Gauge(
            "gpupool_maintenance_deadline_timestamp_seconds",
            "When the maintenance of a pool is overdue; there is no series for a pool that is in none.",
            ("pool",),
            registry=registry,
        )

    def follow(self, devices: Cache[GPUDevice], pools: Cache[GPUPool]) -> None:
        devices.on_change(lambda old, new: _move(self._faulted, _fault(old), _fault(new)))
        devices.on_change(lambda old, new: _move(self._failed, _failed_test(old), _failed_test(new)))
        devices.on_change(lambda old, new: self._tests.move(_test(old), _test(new)))
        pools.on_change(lambda old, new: _move(self._phase, _phase(old), _phase(new)))
        pools.on_change(self._maintenance_changed)

    def _maintenance_changed(self, old: GPUPool | None, new: GPUPool | None) -> None:
        if new is not None and new.status.maintenance is not None:
            self._deadline.labels(new.name).set(new.status.maintenance.deadline.timestamp())
        elif old is not None and old.status.maintenance is not None:
            self._deadline.remove(old.name)


def _move(gauge: Gauge, was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> None:
    if was == now:
        return
    if was is not None:
        gauge.remove(*was)
    if now is not None:
        gauge.labels(*now).set(1)


def _fault(device: GPUDevice | None) -> tuple[str, str, str] | None:
    if device is None or device.status.state is not DeviceState.FAULTED:
        return None
    health = find(device.status.conditions, DeviceCondition.HEALTHY)
    return device.spec.node_name, device.name, health.reason if health else "Unknown"


def _test(device: GPUDevice | None) -> tuple[str] | None:
    said = find(device.status.conditions, DeviceCondition.BURNED_IN) if device is not None else None
    return (said.reason,) if said is not None else None


def _failed_test(device: GPUDevice | None) -> tuple[str, str, str] | None:
    said = _test(device)
    if device is None or said is None or burn_in_pending(device) is not PendingReason.BURN_IN_FAILED:
        return None
    return device.spec.node_name, device.name, *said


def _phase(pool: GPUPool | None) -> tuple[str, str] | None:
    return (pool.name, str(pool.status.phase)) if pool is not None and pool.status.phase is not None else None
