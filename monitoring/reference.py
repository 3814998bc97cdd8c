"""Every metric that our processes export, as they describe themselves.

Controllers and the agent are put together as in the real processes and nothing is started: whatever one of them
registers is on the page, and nothing has to be listed a second time.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gpu_control_plane.admission import controller as admission
from gpu_control_plane.agent.node import process as agent
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.api.markdown import code, table, text
from gpu_control_plane.bootstrap import controller as bootstrap
from gpu_control_plane.console.server import build as build_console
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.inventory import controller as inventory
from gpu_control_plane.kube import Runtime
from gpu_control_plane.operator import controller as operator
from gpu_control_plane.pools import controller as pools
from gpu_control_plane.ray import controller as ray
from gpu_control_plane.ray.metrics import RayMetrics

_INTRODUCTION: Final = """# Metrics

Every metric of our processes, with its labels. The controller and the console serve them on port 8080, the agent on
port 9400, all under `/metrics`. What the cards themselves measure is on [a page of its own](metrics-cards.md). Alerts
that are made of all this, and dashboards that show it, come with the chart: see [monitoring](monitoring.md).

Metrics of the leader alone are marked: other replicas do not export them, show 0, or show what they counted last.
"""


def _build_console(runtime: Runtime) -> None:
    build_console(runtime, ConsoleSettings())


def _build_ray(runtime: Runtime) -> None:
    ray.build(runtime)


_CHAPTERS: Final[Mapping[str, tuple[str, Callable[[Runtime], None]]]] = {
    "Inventory": ("Cards and nodes.", inventory.build),
    "Bootstrap": ("What is missing on nodes.", bootstrap.build),
    "Pools": (
        "Capacity, burn-in, and what needs a person. `gpupool_capacity_*` and `gpu_device_*_total`: leader alone.",
        pools.build,
    ),
    "Ray": (
        "Clusters, jobs and services. `kuberay_*` are KubeRay's. Leader alone; none while KubeRay is active.",
        _build_ray,
    ),
    "Operator": ("The software stack and driver upgrades. Leader alone.", operator.build),
    "Admission": (
        "Webhooks.",
        lambda runtime: admission.build(runtime, admission.Settings(service="webhook", namespace="default")),
    ),
    "Console": ("The web console.", _build_console),
    "Agent": (
        "The agent of a node. Simulated nodes share one, with [metrics of their own](simulated-fleet.md#metrics).",
        lambda runtime: agent.build(runtime, Options(node="page", hardware=Hardware.SIMULATED)),
    ),
}
_NOWHERE: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "here", "user": {}}],
}


class Described(msgspec.Struct, frozen=True):
    """A metric, as Prometheus knows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def chapters() -> dict[str, tuple[Described, ...]]:
    """The metrics of each part, by its title. What every process has is a part of its own."""
    common = _of(lambda _runtime: None)
    known = set(common)
    found = {title: tuple(one for one in _of(build) if one not in known) for title, (_, build) in _CHAPTERS.items()}
    return {"Runtime": common, **found}


def page(header: str) -> str:
    """The page of the documentation."""
    about = {title: sentence for title, (sentence, _) in _CHAPTERS.items()}
    about["Runtime"] = (
        "What every process says about its talk with Kubernetes: the controller, the agents and the console."
    )
    lines = [f"<!-- {header} -->\n", _INTRODUCTION]
    for title, metrics in chapters().items():
        lines += [f"## {title}\n", f"{about[title]}\n", *_rows(metrics)]
    return "\n".join(lines).rstrip() + "\n"


def _rows(metrics: tuple[Described, ...]) -> Iterator[str]:
    rows = ((code(one.name), one.kind, code(*one.labels) if one.labels else "", text(one.help)) for one in metrics)
    yield from table(("Metric", "Type", "Labels", "Meaning"), rows)


def _of(build: Callable[[Runtime], None]) -> tuple[Described, ...]:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(json.dumps(_NOWHERE))
        runtime = Runtime("page", kubeconfig=kubeconfig, status_port=None)
    build(runtime)
    return _described(runtime.metrics.registry)


def _described(registry: CollectorRegistry) -> tuple[Described, ...]:
    held = dict.fromkeys(registry._collector_to_names)  # noqa: SLF001 - the library has no list of what is registered
    described = (metric for metric in held if isinstance(metric, MetricWrapperBase | RayMetrics))
    return tuple(one for metric in described for one in _describe(metric))


def _describe(metric: MetricWrapperBase | RayMetrics) -> Iterator[Described]:
    for family in metric.describe():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: tuple[str, ...] = getattr(metric if isinstance(metric, MetricWrapperBase) else family, "_labelnames")  # noqa: B009 - as above
        yield Described(name, family.type, tuple(labels), family.documentation)
