"""What inventory reports in numbers.

Series grow with models and troubles, never with the number of healthy nodes. Counts follow the caches, so every
replica reports the same, and a scrape of 40,000 cards costs nothing.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.conditions import TRUE, find

_UNKNOWN = "unknown"


class InventoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.devices = Gauge(
            "gpu_inventory_devices", "Cards that have a GPUDevice, by model.", ("vendor", "product"), registry=registry
        )
        self.nodes = Gauge(
            "gpu_inventory_nodes",
            "GPU nodes, by the reason of their condition InventoryComplete.",
            ("reason",),
            registry=registry,
        )
        self.condition = Gauge(
            "gpu_inventory_condition",
            "0 for each node and condition that does not hold; no series where all is well.",
            ("node", "condition"),
            registry=registry,
        )
        self.changes = Counter(
            "gpu_inventory_changes_total",
            "Cards that were detected, replaced or removed, by the reason of the Event about it.",
            ("reason",),
            registry=registry,
        )

    def follow(self, devices: Cache[GPUDevice], states: Cache[GPUNodeState]) -> None:
        devices.on_change(self._device_changed)
        states.on_change(self._state_changed)

    def _device_changed(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        was, now = _model(old), _model(new)
        if was != now:
            _move(self.devices, was, now)

    def _state_changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        was, now = _reason(old), _reason(new)
        if was != now:
            _move(self.nodes, was, now)
        if _incomplete(new):
            assert new is not None  # noqa: S101 - what is not there is not incomplete
            self.condition.labels(new.name, NodeCondition.INVENTORY_COMPLETE).set(0)
        elif old is not None and _incomplete(old):
            self.condition.remove(old.name, NodeCondition.INVENTORY_COMPLETE)


def _move(gauge: Gauge, was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> None:
    if was is not None:
        gauge.labels(*was).dec()
    if now is not None:
        gauge.labels(*now).inc()


def _model(device: GPUDevice | None) -> tuple[str, str] | None:
    if device is None:
        return None
    card = device.status.hardware
    return (str(card.vendor), card.product) if card is not None else (_UNKNOWN, _UNKNOWN)


def _reason(state: GPUNodeState | None) -> tuple[str] | None:
    if state is None:
        return None
    held = find(state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    return (held.reason,) if held is not None else (_UNKNOWN,)


def _incomplete(state: GPUNodeState | None) -> bool:
    held = find(state.status.conditions, NodeCondition.INVENTORY_COMPLETE) if state is not None else None
    return held is not None and held.status != TRUE
