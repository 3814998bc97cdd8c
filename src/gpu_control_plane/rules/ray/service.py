"""What cannot be carried out of a RayService."""

from typing import Final

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import RayService, RayServiceSpec, ServiceUpgradeType
from gpu_control_plane.rules.ray.cluster import made_cluster_faults, spec_faults
from gpu_control_plane.rules.ray.problem import Facts, Faults, Problem, problems_of
from gpu_control_plane.rules.ray.templates import Service, read_service
from gpu_control_plane.rules.ray.texts import duration, name_faults

NAME_LIMIT: Final = 47
_KIND: Final = RayService.resource.kind
_WHOLE: Final = 100


def service_problems(service: RayService, facts: Facts = Facts()) -> tuple[Problem, ...]:  # noqa: B008 - it is frozen
    """Everything that is wrong with it; empty if it can be carried out."""
    return problems_of(service, _faults(service, facts))


def _faults(service: RayService, facts: Facts) -> Faults:
    spec, annotations = service.spec, service.metadata.annotations
    yield from name_faults(service.name, NAME_LIMIT)
    if timeout := annotations.get(Annotation.INITIALIZING_TIMEOUT, ""):
        time = duration(timeout)
        if time is None or time.total_seconds() <= 0:
            yield (
                f"metadata.annotations.{Annotation.INITIALIZING_TIMEOUT.value}",
                f"{timeout!r} is no time to wait: write 90s, 10m or 1h30m, or a number of seconds",
            )
    delay = spec.ray_cluster_deletion_delay_seconds
    if delay is not None and delay < 0:
        yield "spec.rayClusterDeletionDelaySeconds", "it is less than none: take 0 or more"
    yield from _upgrade_faults(spec)
    place, cluster = "spec.rayClusterConfig", spec.ray_cluster_config
    serve_service = read_service(spec.serve_service or {})
    if not isinstance(serve_service, Service):
        yield "spec.serveService", f"this is no Service: {serve_service}"
    head_service = read_service(cluster.head_group_spec.head_service or {})
    if isinstance(head_service, Service) and head_service.metadata is not None and head_service.metadata.name:
        yield (
            f"{place}.headGroupSpec.headService.metadata.name",
            "clusters of a RayService come and go, and each needs a Service of its own: remove the name",
        )
    yield from made_cluster_faults(cluster, place, _KIND)
    yield from spec_faults(cluster, place, annotations, facts, maker=_KIND)


def _upgrade_faults(spec: RayServiceSpec) -> Faults:
    strategy, path = spec.upgrade_strategy, "spec.upgradeStrategy"
    if strategy is None or strategy.type is None:
        return
    if strategy.type not in ServiceUpgradeType.__members__.values():
        known = ", ".join(one.value for one in ServiceUpgradeType)
        yield f"{path}.type", f"{strategy.type} is none: take one of {known}"
    if strategy.type != ServiceUpgradeType.INCREMENTAL:
        return
    if not spec.ray_cluster_config.autoscales:
        yield (
            "spec.rayClusterConfig.enableInTreeAutoscaling",
            "clusters grow and shrink in an incremental upgrade: set it to true",
        )
    options, place = strategy.cluster_upgrade_options, f"{path}.clusterUpgradeOptions"
    if options is None:
        yield place, "an incremental upgrade needs its steps: give stepSizePercent, intervalSeconds, gatewayClassName"
        return
    surge = options.max_surge_percent if options.max_surge_percent is not None else _WHOLE
    step = options.step_size_percent
    if not 0 <= surge <= _WHOLE:
        yield f"{place}.maxSurgePercent", f"{surge} is no part of a whole: take 0 to 100"
    if step is None or not 0 <= step <= _WHOLE:
        yield f"{place}.stepSizePercent", f"{'nothing' if step is None else step} is no step: take 0 to 100"
    elif step > surge:
        yield f"{place}.stepSizePercent", f"{step} is more than maxSurgePercent, which is {surge}: take less"
    if options.interval_seconds is None or options.interval_seconds <= 0:
        yield f"{place}.intervalSeconds", "there is no time between two steps: take 1 or more"
    if not options.gateway_class_name:
        yield f"{place}.gatewayClassName", "it is needed: traffic moves by a Gateway of that class"
