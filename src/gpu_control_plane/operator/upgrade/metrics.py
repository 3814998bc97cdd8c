"""Metrics of upgrades: NVIDIA's for the whole cluster, and ours for each driver."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from gpu_control_plane.api.nvidia.names import UpgradeState
from gpu_control_plane.operator.upgrade.node_view import NodeView

CLUSTER_POLICY: Final = "cluster-policy"
"""The label `driver` for nodes whose driver comes from the ClusterPolicy."""
_UNKNOWN: Final = "unknown"


class GroupCount(msgspec.Struct, frozen=True):
    """The nodes and free slots of a group."""

    views: Sequence[NodeView]
    slots: int


class UpgradeMetrics:
    """Set as a whole after each look at all groups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._enabled = Gauge(
            "gpu_operator_driver_auto_upgrade_enabled",
            "Whether drivers are upgraded by the operator.",
            registry=registry,
        )
        self._numbers = {
            name: Gauge(f"gpu_operator_nodes_upgrades_{name}", f"Nodes {meaning}.", registry=registry)
            for name, meaning in (
                ("in_progress", "being upgraded"),
                ("done", "with the driver as it should be"),
                ("failed", "on which the upgrade failed"),
                ("available", "that could begin an upgrade now"),
                ("pending", "that wait for an upgrade"),
            )
        }
        self._nodes = Gauge(
            "gpu_operator_upgrade_nodes",
            "Nodes by the state of their upgrade and the driver they get.",
            ("driver", "state"),
            registry=registry,
        )

    def show(self, groups: Mapping[str, GroupCount]) -> None:
        """Set the metrics of all active groups, by name; those of other groups are removed."""
        self._enabled.set(bool(groups))
        views = [view for count in groups.values() for view in count.views]
        numbers = {
            "in_progress": sum(view.in_progress for view in views),
            "done": sum(view.state is UpgradeState.DONE for view in views),
            "failed": sum(view.state is UpgradeState.FAILED for view in views),
            "available": sum(count.slots for count in groups.values()),
            "pending": sum(view.state is UpgradeState.REQUIRED for view in views),
        }
        for name, gauge in self._numbers.items():
            gauge.set(numbers[name])
        self._nodes.clear()
        for driver, count in groups.items():
            for state, nodes in Counter(view.state for view in count.views).items():
                self._nodes.labels(driver or CLUSTER_POLICY, state.value or _UNKNOWN).set(nodes)
