"""Metrics of the device plugins."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class PluginMetrics:
    """By resource."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.registrations = Counter(
            "gpu_agent_plugin_registrations_total",
            "Registrations with the kubelet by result: `done` or `failed`.",
            ("resource", "result"),
            registry=registry,
        )
        self.allocations = Counter(
            "gpu_agent_plugin_allocations_total",
            "Containers that were given their devices.",
            ("resource",),
            registry=registry,
        )
        self.refusals = Counter(
            "gpu_agent_plugin_refusals_total",
            "Containers that were refused devices the kubelet had chosen, and failed.",
            ("resource",),
            registry=registry,
        )
        self.allocate_seconds = Histogram(
            "gpu_agent_plugin_allocate_seconds",
            "Time one container waited for its devices.",
            ("resource",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.pushes = Counter(
            "gpu_agent_plugin_pushes_total", "Device lists sent to the kubelet.", ("resource",), registry=registry
        )
        self.last_push = Gauge(
            "gpu_agent_plugin_last_push_timestamp_seconds",
            "When the kubelet was last sent a device list.",
            ("resource",),
            registry=registry,
        )
        self.streams = Gauge(
            "gpu_agent_plugin_streams",
            "Open streams on which the kubelet listens for device lists; 0 means that no device is handed out.",
            ("resource",),
            registry=registry,
        )
        self.devices = Gauge(
            "gpu_agent_plugin_devices",
            "Devices on the list, by health: `healthy` or `unhealthy`.",
            ("resource", "health"),
            registry=registry,
        )

    def forget(self, resource: str) -> None:
        """Remove the gauges of a resource that is no longer served; counters stay."""
        self.last_push.remove(resource)
        self.streams.remove(resource)
        for health in ("healthy", "unhealthy"):
            self.devices.remove(resource, health)
