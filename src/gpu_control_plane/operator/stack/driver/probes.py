"""When a driver counts as loaded, as ready and as alive: one question, asked with different patience. Pure."""

from gpu_control_plane.api.nvidia.fields import Probe
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish
from gpu_control_plane.operator.stack.manifest import Manifest


def add_probes(daemonset: DaemonSet, wish: DriverWish) -> None:
    """Set what the spec says; where it is silent, the patience of the asset stays.

    The other probes ask what the start-up probe asks and may take as long to answer. Kubernetes allows only one good
    answer for all but readiness, so a wish for more is not passed on.
    """
    main = daemonset.main.manifest
    startup = main["startupProbe"]
    startup.update(_timing(wish.startup, several=False))
    question = {"exec": startup["exec"], "timeoutSeconds": startup["timeoutSeconds"]}
    if wish.liveness is not None:
        main["livenessProbe"] = {**question, **_timing(wish.liveness, several=False)}
    if wish.readiness is not None:
        main["readinessProbe"] = {**question, **_timing(wish.readiness, several=True)}


def _timing(probe: Probe | None, *, several: bool) -> Manifest:
    if probe is None:
        return {}
    wanted = {
        "initialDelaySeconds": probe.initial_delay_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "periodSeconds": probe.period_seconds,
        "successThreshold": probe.success_threshold if several else None,
        "failureThreshold": probe.failure_threshold,
    }
    return {name: value for name, value in wanted.items() if value is not None}
