"""ServiceMonitors: how Prometheus is told of an operand, as the policy says. Pure."""

from gpu_control_plane.api.nvidia.fields import ServiceMonitor, on
from gpu_control_plane.operator.stack.manifest import Manifest


def scraped(manifests: list[Manifest], settings: ServiceMonitor | None, *, absent: bool) -> list[Manifest]:
    """All objects, with ServiceMonitors only if they are wanted. `absent` is what an untouched switch means."""
    wanted = settings or ServiceMonitor()
    if not on(wanted.enabled, absent=absent):
        return [manifest for manifest in manifests if manifest["kind"] != "ServiceMonitor"]
    for manifest in manifests:
        if manifest["kind"] == "ServiceMonitor":
            _adjust(manifest, wanted)
    return manifests


def _adjust(monitor: Manifest, wanted: ServiceMonitor) -> None:
    monitor["metadata"].setdefault("labels", {}).update(wanted.additional_labels)
    endpoint = monitor["spec"]["endpoints"][0]
    chosen = {
        "interval": wanted.interval,
        "scrapeTimeout": wanted.scrape_timeout,
        "honorLabels": wanted.honor_labels,
        "relabelings": [dict(rule) for rule in wanted.relabelings],
    }
    endpoint.update({name: value for name, value in chosen.items() if value})
