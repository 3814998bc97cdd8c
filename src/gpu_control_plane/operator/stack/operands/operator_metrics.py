"""Metrics of the operator itself: a Service for the controller, and a ServiceMonitor that scrapes it."""

from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import configure_service_monitors


def _objects(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    metrics = render_input.policy.operator.metrics
    return configure_service_monitors(manifests, metrics.service_monitor if metrics else None, absent=True)


STATE = StackState(name="state-operator-metrics", enabled=lambda _policy: True, objects=_objects)
