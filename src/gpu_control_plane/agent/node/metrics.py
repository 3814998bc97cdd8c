"""What the agent of a real node counts beyond what every agent does."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Histogram

from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.agent.views import NodeStateView


class NodeMetrics(AgentMetrics):
    """The metrics of a node's agent, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.order_seconds = Histogram(
            "gpu_agent_order_seconds",
            "From the moment an order was seen until the kubelet had been told.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=registry,
        )


class OrderClock:
    """Measures how long orders take, from the moment that they have arrived until the kubelet has been told."""

    def __init__(self, seconds: Histogram, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._heard: dict[int, float] = {}

    def heard(self, old: NodeStateView | None, new: NodeStateView | None) -> None:
        """A GPUNodeState has changed, and its orders perhaps, too."""
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._heard = {new.metadata.generation: self._monotonic()}

    def carried_out(self, generation: int) -> None:
        began = self._heard.pop(generation, None)
        if began is not None:
            self._seconds.observe(self._monotonic() - began)
