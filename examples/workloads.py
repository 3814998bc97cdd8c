"""Workloads that ask for cards, as the demo runs them."""

from typing import ClassVar

import msgspec

from gpu_control_plane.kube import Object, Resource
from gpu_control_plane.kube.objects import Condition


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    status: DeploymentStatus = DeploymentStatus()


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def bare_pod(name: str, pool: str) -> dict[str, object]:
    """A pod with one unit of the pool."""
    return {"metadata": {"name": name}, "spec": _pod_spec(pool)}


def deployment(name: str, pool: str, replicas: int) -> dict[str, object]:
    """So many pods with one unit of the pool each."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(pool)}
    return {"spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


def _pod_spec(pool: str) -> dict[str, object]:
    limits = {f"gpu.deckhouse.io/{pool}": "1"}
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    return {"containers": [container], "terminationGracePeriodSeconds": 0}
