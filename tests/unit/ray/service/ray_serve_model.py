"""Ray Serve of the clusters of one RayService: what has been put to each, and which applications run on its workers."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.dashboard.calls import Answer
from gpu_control_plane.ray.dashboard.models import ServeApplication, ServeDeployment, ServeDetails
from gpu_control_plane.ray.demand import group_pods
from gpu_control_plane.ray.owned import RayPod, is_owned


class PodsModel(Protocol):
    """The clusters and pods that Ray Serve runs on."""

    now: datetime
    clusters: dict[str, RayCluster]
    pods: dict[str, RayPod]

    def head_runs(self, cluster: RayCluster) -> bool: ...

    def workers(self, cluster: RayCluster, name: str) -> list[RayPod]: ...


class RayServeModel:
    """Stands in for `DashboardCalls`: whatever is asked is answered at once."""

    def __init__(self, pods_model: PodsModel) -> None:
        self._pods_model = pods_model
        self.configs: dict[str, dict[str, Any]] = {}
        """What Ray Serve of each cluster has, by uid."""
        self.puts: list[tuple[str, dict[str, Any]]] = []
        self.applications_fail: set[str] = set()
        """Clusters, by image, whose applications never run."""
        self.needed: dict[str, int] = {}
        """Workers of each group without which not all deployments run; one of each group by default."""

    def ask(self, key: Key, name: str, call: object, *, every: float | None = None) -> Answer[Any] | None:
        """Ray Serve, which answers at once if its head runs."""
        what, subject, *rest = name.split(" ")
        if what == "head":
            pod = next(pod for pod in self._pods_model.pods.values() if pod.metadata.uid == subject)
            owner = next(each for each in self._pods_model.clusters.values() if is_owned(pod, each))
            return _answer(self.all_run(owner), self._pods_model.now)
        cluster = next(each for each in self._pods_model.clusters.values() if each.metadata.uid == subject)
        if not self._pods_model.head_runs(cluster):
            return None
        if what == "put":
            body = self._body(cluster, rest[0])
            if self.configs.get(subject) != body:
                self.puts.append((cluster.name, body))
            self.configs[subject] = body
            return _answer(None, self._pods_model.now)
        return _answer(self.details(cluster), self._pods_model.now)

    def retain(self, key: Key, names: Iterable[str]) -> None:
        pass

    def _body(self, cluster: RayCluster, config_id: str) -> dict[str, Any]:
        """What is put: the config id is all that a call's name has of it."""
        digest, _, capacity = config_id.partition(":")
        return {"digest": digest, "capacity": capacity, "applications": [{"name": "a"}]}

    def capacity(self, cluster: RayCluster) -> int:
        """Percent of replicas that Ray Serve was asked for."""
        return int(self.configs.get(cluster.metadata.uid, {}).get("capacity") or "100")

    def least(self, cluster: RayCluster, name: str) -> int:
        """Workers without which not every deployment has a replica."""
        return min(self.needed.get(name, 1), self.capacity(cluster))

    def all_run(self, cluster: RayCluster) -> bool:
        """Whether every deployment has a replica: one for each group of workers, which runs on its pods."""
        image = cluster.spec.head_group_spec.template["spec"]["containers"][0]["image"]
        groups = cluster.spec.worker_group_specs
        return (
            cluster.metadata.uid in self.configs
            and self._pods_model.head_runs(cluster)
            and image not in self.applications_fail
            and all(
                len(self._pods_model.workers(cluster, each.group_name)) >= self.least(cluster, each.group_name)
                for each in groups
                if not each.suspend
            )
        )

    def details(self, cluster: RayCluster) -> ServeDetails:
        if cluster.metadata.uid not in self.configs:
            return ServeDetails()
        wanted = {group.group_name: group_pods(group) for group in cluster.spec.worker_group_specs}
        whole = all(len(self._pods_model.workers(cluster, name)) >= count for name, count in wanted.items())
        runs = self.all_run(cluster)
        image = cluster.spec.head_group_spec.template["spec"]["containers"][0]["image"]
        deployment = ServeDeployment(
            status="HEALTHY" if runs and whole else "UPSCALING",
            replica_runs=runs,
        )
        application = ServeApplication(
            status="DEPLOY_FAILED" if image in self.applications_fail else "RUNNING" if runs and whole else "DEPLOYING",
            deployments={"D": deployment},
            deployed_app_config=msgspec.Raw(b'{"name":"a"}'),
        )
        return ServeDetails(applications={"a": application})


def _answer(value: Any, now: datetime) -> Answer[Any]:
    return Answer(value=value, error=None, at=now, since=now)
