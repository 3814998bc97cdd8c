"""What the agent of a real node counts beyond what every agent does."""

from prometheus_client import CollectorRegistry, Histogram

from gpu_control_plane.agent.metrics import AgentMetrics


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
