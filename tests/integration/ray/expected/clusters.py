"""What every sample of a RayCluster becomes, by the rules of KubeRay."""

from collections.abc import Mapping
from typing import Final

from integration.ray.expected.cluster_objects import OBJECTS
from integration.ray.expected.cluster_pods import PODS
from integration.ray.expected.cluster_schedulers import SCHEDULED
from integration.ray.expected.sample import Sample

CLUSTERS: Final[Mapping[str, Sample]] = {**PODS, **OBJECTS, **SCHEDULED}
