"""What the agent counts, beside the numbers of the runtime."""

from prometheus_client import CollectorRegistry, Counter


class AgentMetrics:
    """The agent's metrics, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Counter(
            "gpu_agent_publications_total", "Descriptions of a node's cards written, because they had changed.",
            registry=registry,
        )  # fmt: skip
        self.allocations = Counter(
            "gpu_agent_allocations_total", "Pods that got the cards they asked for.", registry=registry
        )
        self.releases = Counter(
            "gpu_agent_releases_total",
            "Times that cards left a resource after they were seen unused.",
            registry=registry,
        )
        self.faults = Counter(
            "gpu_agent_faults_total", "Cards that became unhealthy, by reason.", ("reason",), registry=registry
        )


class FleetMetrics(AgentMetrics):
    """The metrics of the simulated fleet, which is the kubelet of its nodes, too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.refusals = Counter(
            "gpu_agent_unexpected_admission_errors_total",
            "Pods that were bound to a node whose cards had meanwhile gone, and failed.",
            registry=registry,
        )
