"""Metrics of the operator itself: a Service in front of the controller, and whoever scrapes it."""

from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.scraping import scraped
from gpu_control_plane.operator.stack.state import State


def _objects(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    metrics = stage.policy.operator.metrics
    return scraped(manifests, metrics.service_monitor if metrics else None, absent=True)


STATE = State(name="state-operator-metrics", enabled=lambda _policy: True, objects=_objects)
