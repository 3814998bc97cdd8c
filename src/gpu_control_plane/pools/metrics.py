"""What pools count."""

from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.api.gpupool import Units


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
