"""Metrics of inventory.

Counts follow the caches, so every replica reports the same, and a scrape at 40,000 cards costs nothing. A node has
series of its own while it has cards.
"""

from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.conditions import TRUE, find
from gpu_control_plane.kube.metrics import CountGauge, counting_failures

CARDS: Final = "cards"
NODE_LABEL: Final = "gate"
"""The label value is older than the word: alerts and dashboards know it."""

_UNKNOWN: Final = "unknown"
_CONDITIONS: Final = (NodeCondition.INVENTORY_COMPLETE, NodeCondition.VANISHED)


class InventoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.devices = CountGauge(
            Gauge(
                "gpu_inventory_devices",
                "Cards that have a GPUDevice, by model.",
                ("vendor", "product"),
                registry=registry,
            )
        )
        self.per_node = CountGauge(
            Gauge("gpu_inventory_devices_total", "Cards of each node.", ("node",), registry=registry)
        )
        self.per_state = CountGauge(
            Gauge(
                "gpu_inventory_devices_state",
                "Cards of each node by state: Unassigned, Reserved, Assigned, Draining, Faulted or `unknown`.",
                ("node", "state"),
                registry=registry,
            )
        )
        self.nodes = CountGauge(
            Gauge(
                "gpu_inventory_nodes",
                "GPU nodes, by the reason of their condition InventoryComplete.",
                ("reason",),
                registry=registry,
            )
        )
        self.condition = Gauge(
            "gpu_inventory_condition",
            "1 for each condition of a node that is true, 0 for each that is not.",
            ("node", "condition"),
            registry=registry,
        )
        self.changes = Counter(
            "gpu_inventory_changes_total",
            "Cards that were detected, moved, replaced or removed, by the reason of the Event about it.",
            ("reason",),
            registry=registry,
        )
        self.errors = Counter(
            "gpu_inventory_handler_errors_total",
            "Attempts that failed, by handler: cards or gate.",
            ("handler",),
            registry=registry,
        )
        for handler in (CARDS, NODE_LABEL):
            self.errors.labels(handler)

    def follow(self, devices: Cache[GPUDevice], states: Cache[GPUNodeState]) -> None:
        devices.on_change(self._device_changed)
        states.on_change(self._state_changed)

    def handling(self, handler: str) -> AbstractContextManager[None]:
        """Count what fails in the block."""
        return counting_failures(self.errors.labels(handler))

    def _device_changed(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        self.devices.move(_model(old), _model(new))
        self.per_node.move(_place(old), _place(new))
        self.per_state.move(_state(old), _state(new))

    def _state_changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        self.nodes.move(_reason(old), _reason(new))
        for kind in _CONDITIONS:
            before, after = _status(old, kind), _status(new, kind)
            if new is not None and after is not None:
                self.condition.labels(new.name, kind).set(after)
            elif old is not None and before is not None:
                self.condition.remove(old.name, kind)


def _model(device: GPUDevice | None) -> tuple[str, str] | None:
    if device is None:
        return None
    card = device.status.hardware
    return (str(card.vendor), card.product) if card is not None else (_UNKNOWN, _UNKNOWN)


def _place(device: GPUDevice | None) -> tuple[str] | None:
    return (device.spec.node_name,) if device is not None else None


def _state(device: GPUDevice | None) -> tuple[str, str] | None:
    if device is None:
        return None
    return device.spec.node_name, str(device.status.state) if device.status.state is not None else _UNKNOWN


def _reason(state: GPUNodeState | None) -> tuple[str] | None:
    if state is None:
        return None
    held = find(state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    return (held.reason,) if held is not None else (_UNKNOWN,)


def _status(state: GPUNodeState | None, kind: NodeCondition) -> int | None:
    held = find(state.status.conditions, kind) if state is not None else None
    return int(held.status == TRUE) if held is not None else None
