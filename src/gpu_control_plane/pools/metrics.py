"""What pools count.

Capacity is counted by the leader alone. Troubles follow the caches, so every replica reports the same; their series
grow with what is wrong, never with the number of cards in order.
"""

from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpupool import GPUPool, Units
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.conditions import find


class PoolMetrics:
    """Capacity by pool, and cards by state."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._capacity = {
            name: Gauge(f"gpupool_capacity_{name}", f"Units of the pool: {meaning}.", ("pool",), registry=registry)
            for name, meaning in (
                ("total", "all"),
                ("used", "held by pods"),
                ("reserved", "promised to pods that do not run yet"),
                ("available", "a pod could have now"),
                ("faulted", "on cards with a fault"),
            )
        }
        self._unassigned = Gauge("gpu_device_unassigned_total", "Cards in no pool.", registry=registry)
        self._reserved = Gauge("gpu_device_reserved_total", "Cards promised to pods.", registry=registry)

    def capacity(self, pool: str, units: Units | None) -> None:
        """Show a pool's units; None forgets a pool that is gone."""
        for name, gauge in self._capacity.items():
            if units is not None:
                gauge.labels(pool).set(getattr(units, name))
            else:
                gauge.remove(pool)

    def cards(self, *, unassigned: int, reserved: int) -> None:
        self._unassigned.set(unassigned)
        self._reserved.set(reserved)


class TroubleMetrics:
    """Which card is broken, and how each pool is, for alerts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._faulted = Gauge(
            "gpu_device_faulted",
            "1 for each card that is out of service, with the reason of its condition Healthy.",
            ("node", "device", "reason"),
            registry=registry,
        )
        self._phase = Gauge("gpupool_phase", "1 for the phase that a pool is in.", ("pool", "phase"), registry=registry)

    def follow(self, devices: Cache[GPUDevice], pools: Cache[GPUPool]) -> None:
        devices.on_change(lambda old, new: _move(self._faulted, _fault(old), _fault(new)))
        pools.on_change(lambda old, new: _move(self._phase, _phase(old), _phase(new)))


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


def _phase(pool: GPUPool | None) -> tuple[str, str] | None:
    return (pool.name, str(pool.status.phase)) if pool is not None and pool.status.phase is not None else None
