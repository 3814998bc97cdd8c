"""Views of built-in kinds, as small as the tests need them."""

from typing import ClassVar

import msgspec

from gpu_control_plane.kube import Object, Resource


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    message: str = ""


class Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    status: PodStatus = PodStatus()


class Missing(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("missing.example", "v1", "Missing", "missings", namespaced=False)


def configmap(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}
