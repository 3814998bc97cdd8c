"""The Deployment of an operator, ours or another: how it was started."""

import itertools
from typing import Any, ClassVar, Final

from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.kube.errors import NotFound

_OURS: Final = "gpu-control-plane-controller"


class Deployment(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def selector(self) -> str:
        """The label selector of its pods."""
        labels = self.spec.get("selector", {}).get("matchLabels", {})
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    @property
    def images(self) -> dict[str, str]:
        """Variables of its environment that name images of operands."""
        return {name: value for name, value in self.variables.items() if name.endswith("_IMAGE")}

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its environment that have a plain value."""
        held = (one for container in self._containers for one in container.get("env", []))
        return {one["name"]: one["value"] for one in held if one.get("value")}

    def argument(self, name: str) -> tuple[str, ...]:
        """The values of `--name=value`, or of `--name value`, in the arguments of its containers."""
        given, found = self._arguments, []
        for arg, following in itertools.zip_longest(given, given[1:], fillvalue="-"):
            flag, equals, value = arg.partition("=")
            if flag == f"--{name}" and (equals or not following.startswith("-")):
                found.append(value if equals else following)
        return tuple(found)

    def flag(self, name: str) -> bool:
        """Whether `--name`, or `--name=true`, is among the arguments of its containers."""
        return f"--{name}" in self._arguments or f"--{name}=true" in self._arguments

    @property
    def config_maps(self) -> tuple[str, ...]:
        """Names of ConfigMaps that its pods mount."""
        volumes = self.spec.get("template", {}).get("spec", {}).get("volumes", [])
        named = (volume.get("configMap", {}).get("name") for volume in volumes)
        return tuple(name for name in named if name)

    @property
    def _arguments(self) -> list[str]:
        return [arg for container in self._containers for arg in container.get("args") or []]

    @property
    def _containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spec.get("template", {}).get("spec", {}).get("containers", [])
        return found


class ReplicaSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


async def our_deployment(client: Client, own_namespace: str) -> Deployment | None:
    """The Deployment of our controllers; None if they were not installed by Helm."""
    try:
        return await client.get(Deployment, _OURS, own_namespace)
    except NotFound:
        return None
