"""What cannot be carried out of a RayCluster, and of the spec of one inside of a RayJob or RayService."""

import re
from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.rules.ray.autoscaling import autoscaling_faults
from gpu_control_plane.rules.ray.fault_tolerance import storage_faults
from gpu_control_plane.rules.ray.groups import group_faults
from gpu_control_plane.rules.ray.problem import Facts, Faults, Problem, problems_of
from gpu_control_plane.rules.ray.security import auth_faults, history_faults, network_faults, tls_faults
from gpu_control_plane.rules.ray.texts import name_faults
from gpu_control_plane.settings import DURATION

NAME_LIMIT: Final = 53
_MAKERS: Final = frozenset({"RayJob", "RayService"})


def cluster_problems(cluster: RayCluster, facts: Facts = Facts()) -> tuple[Problem, ...]:  # noqa: B008 - it is frozen
    """Everything that is wrong with it, in the order of its fields; empty if it can be carried out."""
    return problems_of(cluster, _faults(cluster, facts))


def _faults(cluster: RayCluster, facts: Facts) -> Faults:
    yield from name_faults(cluster.name, NAME_LIMIT)
    timeout = cluster.metadata.annotations.get(Annotation.IDLE_TIMEOUT, "")
    if timeout and re.fullmatch(DURATION, timeout) is None:
        path = f"metadata.annotations.{Annotation.IDLE_TIMEOUT.value}"
        yield path, f"{timeout!r} is no time to be idle: write 90s, 5m or 1h30m"
    yield from spec_faults(cluster.spec, "spec", cluster.metadata.annotations, facts)
    maker = cluster.metadata.labels.get(Label.ORIGINATED_FROM_KIND, "")
    if maker in _MAKERS:
        yield from made_cluster_faults(cluster.spec, "spec", maker)


def made_cluster_faults(spec: RayClusterSpec, path: str, maker: str) -> Faults:
    """What a cluster cannot have that a RayJob or RayService makes."""
    if spec.upgrade_strategy is not None and spec.upgrade_strategy.type is not None:
        yield (
            f"{path}.upgradeStrategy.type",
            f"a {maker} makes this cluster, and looks after its changes itself: remove upgradeStrategy",
        )


def spec_faults(
    spec: RayClusterSpec, path: str, annotations: Mapping[str, str], facts: Facts, *, maker: str = ""
) -> Faults:
    """What is wrong with the spec of a cluster; `annotations` are those of the object that it is in, `maker` is the
    kind of that object if it is no RayCluster."""
    yield from group_faults(spec, path)
    yield from autoscaling_faults(spec, path)
    yield from auth_faults(spec, path, maker)
    yield from storage_faults(spec, path, annotations)
    yield from network_faults(spec, path)
    yield from tls_faults(spec, path, facts)
    yield from history_faults(spec, path)
