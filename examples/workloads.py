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


def deployment(name: str, pool: str, replicas: int) -> dict[str, object]:
    """So many pods with one card of the pool each."""
    labels = {"app": name}
    limits = {f"gpu.deckhouse.io/{pool}": "1"}
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return {"spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}
