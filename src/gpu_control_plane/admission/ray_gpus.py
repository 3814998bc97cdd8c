"""The `num-gpus` of a RayCluster that is about to be written, filled in for Ray's autoscaler. Pure.

It may be skipped at any time: an Event on the RayCluster then says what to write.
"""

from collections.abc import Iterator

from gpu_control_plane.admission.placement import Malformed, member_object
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, MANAGED_BY_MULTIKUEUE, Annotation
from gpu_control_plane.kube.admission import AdmissionResponse, allow, change
from gpu_control_plane.kube.json_patch import Json
from gpu_control_plane.rules.ray.autoscaler_view import GPUS_PARAM
from gpu_control_plane.rules.ray.filled_gpus import filled_gpus, filled_text, gpus_to_fill
from gpu_control_plane.rules.ray.gpus import PoolResources


def fill_gpus(cluster: RayCluster, document: dict[str, Json], gpus: PoolResources) -> AdmissionResponse:
    """Fill in what the autoscaler would not see, and take back what was filled in and holds no more; `document`, the
    whole of the cluster, is edited for that.

    Values of the user's own stay. What was filled in already and still holds is changed no more.
    """
    before = filled_gpus(cluster)
    wanted = gpus_to_fill(cluster, gpus)
    if cluster.deleting or cluster.spec.managed_by == MANAGED_BY_MULTIKUEUE or not (before or wanted):
        return allow()
    try:
        for name, group in _groups(cluster, document):
            if name not in wanted and name not in before:
                continue
            params = member_object(group, "rayStartParams")
            if name in wanted:
                params[GPUS_PARAM] = wanted[name]
            elif params.get(GPUS_PARAM) == before[name]:
                del params[GPUS_PARAM]
        annotations = member_object(member_object(document, "metadata"), "annotations")
    except Malformed:
        return allow()  # The API server refuses it.
    annotations.pop(Annotation.FILLED_GPUS.value, None)
    if wanted:
        annotations[Annotation.FILLED_GPUS.value] = filled_text(wanted)
    return change(document)


def _groups(cluster: RayCluster, document: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    spec = member_object(document, "spec")
    yield HEAD_GROUP, member_object(spec, "headGroupSpec")
    workers = spec.get("workerGroupSpecs") or []
    if not isinstance(workers, list):
        raise Malformed
    for group, raw in zip(cluster.spec.worker_group_specs, workers, strict=True):
        if not isinstance(raw, dict):
            raise Malformed
        yield group.group_name, raw
