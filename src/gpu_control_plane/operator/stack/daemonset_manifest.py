"""A DaemonSet's manifest while it is rendered: the operations that transforms consist of.

They change the manifest in place. Asking for a container or a volume that the asset does not have is a bug and raises
`KeyError` with the name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_control_plane.operator.stack.manifest import Manifest


class ContainerManifest:
    """A container in the manifest of a DaemonSet."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def env(self, name: str) -> str | None:
        """The literal value of a variable; None if it is absent or comes from a `valueFrom`."""
        return next((item.get("value") for item in self.manifest.get("env", ()) if item["name"] == name), None)

    def set_env(self, name: str, value: str) -> None:
        """Set a variable; an existing one keeps its position."""
        held = self.manifest.setdefault("env", [])
        for item in held:
            if item["name"] == name:
                item.clear()
                item.update(name=name, value=value)
                return
        held.append({"name": name, "value": value})

    def drop_env(self, name: str) -> None:
        self.manifest["env"] = [item for item in self.manifest.get("env", ()) if item["name"] != name]

    def mount(
        self, volume: str, path: str, *, sub_path: str = "", read_only: bool = False, propagation: str = ""
    ) -> None:
        """Mount a volume at a path, in place of what was mounted there."""
        entry: Manifest = {"name": volume, "mountPath": path}
        if sub_path:
            entry["subPath"] = sub_path
        if read_only:
            entry["readOnly"] = True
        if propagation:
            entry["mountPropagation"] = propagation
        others = [held for held in self.manifest.get("volumeMounts", ()) if held["mountPath"] != path]
        self.manifest["volumeMounts"] = [*others, entry]

    def unmount(self, volume: str) -> None:
        held = self.manifest.get("volumeMounts", ())
        self.manifest["volumeMounts"] = [entry for entry in held if entry["name"] != volume]

    def move_mount(self, volume: str, path: str) -> None:
        """Mount a volume at another path, if it is mounted at all."""
        for entry in self.manifest.get("volumeMounts", ()):
            if entry["name"] == volume:
                entry["mountPath"] = path


class DaemonSetManifest:
    """The manifest of a DaemonSet."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @name.setter
    def name(self, name: str) -> None:
        self.manifest["metadata"]["name"] = name

    @property
    def template(self) -> Manifest:
        found: Manifest = self.manifest["spec"]["template"]
        return found

    @property
    def pod(self) -> Manifest:
        found: Manifest = self.template["spec"]
        return found

    def containers(self) -> Iterator[ContainerManifest]:
        """All containers, init containers included."""
        for part in ("initContainers", "containers"):
            for manifest in self.pod.get(part, ()):
                yield ContainerManifest(manifest)

    def running(self) -> list[ContainerManifest]:
        """The containers without init containers: those that run for as long as the pod does."""
        return [ContainerManifest(manifest) for manifest in self.pod["containers"]]

    def has(self, name: str) -> bool:
        return any(container.name == name for container in self.containers())

    def container(self, name: str) -> ContainerManifest:
        for container in self.containers():
            if container.name == name:
                return container
        raise KeyError(name)

    @property
    def main(self) -> ContainerManifest:
        return ContainerManifest(self.pod["containers"][0])

    def drop(self, *names: str) -> None:
        """Remove containers of these names, where there are some."""
        for part in ("initContainers", "containers"):
            if part in self.pod:
                self.pod[part] = [held for held in self.pod[part] if held["name"] not in names]

    def volume(self, name: str) -> Manifest:
        for volume in self.pod.get("volumes", ()):
            if volume["name"] == name:
                found: Manifest = volume
                return found
        raise KeyError(name)

    def has_volume(self, name: str) -> bool:
        return any(volume["name"] == name for volume in self.pod.get("volumes", ()))

    def add_volume(self, name: str, **source: Any) -> None:
        """Add a volume, or replace its source: `add_volume("x", hostPath={"path": "/x"})`."""
        others = [volume for volume in self.pod.get("volumes", ()) if volume["name"] != name]
        self.pod["volumes"] = [*others, {"name": name, **source}]

    def drop_volume(self, name: str) -> None:
        """Remove a volume and everything that mounts it."""
        self.pod["volumes"] = [volume for volume in self.pod.get("volumes", ()) if volume["name"] != name]
        for container in self.containers():
            container.unmount(name)

    def move_host_path(self, volume: str, path: str) -> None:
        """Let a volume mount another folder of the host, if there is such a volume."""
        if self.has_volume(volume):
            self.volume(volume)["hostPath"]["path"] = path

    def label(self, labels: Mapping[str, str], *, protected: Iterable[str] = ()) -> None:
        """Add labels to the DaemonSet and to its pods; protected labels of the pods stay as they are."""
        self.manifest["metadata"].setdefault("labels", {}).update(labels)
        pods = self.template["metadata"].setdefault("labels", {})
        pods.update({key: value for key, value in labels.items() if key not in set(protected)})

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Add annotations to the DaemonSet and to its pods."""
        for metadata in (self.manifest["metadata"], self.template["metadata"]):
            if annotations:
                metadata.setdefault("annotations", {}).update(annotations)

    def select(self, labels: Mapping[str, str]) -> None:
        """Restrict the pods to nodes that also have these labels."""
        self.pod.setdefault("nodeSelector", {}).update(labels)
