"""Pieces of PromQL that alerts and dashboards share, so that both count the same way."""

from collections.abc import Iterable
from typing import Final

from gpu_control_plane import DEFAULT_NAMESPACE

NAMESPACE: Final = DEFAULT_NAMESPACE
"""For which rules are generated; the chart puts that of its release in its place."""
LEASE: Final = "gpu-control-plane"
CONTROLLER: Final = "gpu-control-plane-controller"
"""The job of the controllers, as the chart's ServiceMonitor names it; also their Deployment."""
AGENT: Final = "gpu-control-plane-agent"
"""The job of the agents, as the chart's PodMonitor names it; also their DaemonSet."""
CARD: Final = "Hostname, gpu, UUID"
"""The labels that identify a card in the agent's metrics. A card has several series when pods share it."""
POOL_RESOURCES: Final = 'resource=~"gpu_deckhouse_io_.+"'
"""Resources of pools under their usual name, as kube-state-metrics writes them."""

WITHOUT_POOL: Final = (
    'max by (node) (gpu_bootstrap_node_phase{phase=~"Monitoring|Ready"}) '
    'and on (node) max by (node) (gpu_inventory_devices_state{state="Unassigned"}) > 0 '
    'unless on (node) max by (node) (gpu_inventory_devices_state{state=~"Assigned|Draining|Reserved"}) > 0'
)
"""Nodes that could serve pools, and none of whose cards does. A broken card says nothing of the others."""


def by_card(metric: str, matcher: str = "") -> str:
    """A reading of each card, whichever pods have it. A card that pods share has a series for each of them."""
    labels = f"{{{matcher}}}" if matcher else ""
    return f"max by ({CARD}) ({metric}{labels})"


def history(metric: str, window: str, step: str = "1m") -> str:
    """What each card showed in the window. Its series change with the pod that has it: what a counter grew by in the
    moment when the pod ended would be in none of them."""
    return f"{by_card(metric)}[{window}:{step}]"


def led(metric: str) -> str:
    """What the leader says: other replicas do not count it, and a former leader shows what it counted last."""
    return f'({metric} and on (instance) kube_leading{{lease="{LEASE}"}} == 1)'


def pool(capacity: str, matcher: str = "") -> str:
    """A number of each resource of each pool, such as `available`."""
    labels = f"{{{matcher}}}" if matcher else ""
    return f"max by (pool, resource) {led(f'gpupool_capacity_{capacity}{labels}')}"


def one_of(values: Iterable[object]) -> str:
    """A pattern that fits these values and no others."""
    return "|".join(sorted(map(str, values), key=lambda value: (len(value), value)))
