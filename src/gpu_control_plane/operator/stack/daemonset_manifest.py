"""A DaemonSet while it is being written: the few verbs that transforms are made of.

It works on a manifest of its own, in place. Asking for a container or a volume that the asset does not have is a bug
and raises `KeyError` with the name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_control_plane.operator.stack.manifest import Manifest


class Container:
    """One container of the pod."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def env(self, name: str) -> str | None:
        """The value of a variable that is written out; None if it is absent or comes from somewhere else."""
        return next((item.get("value") for item in self.manifest.get("env", ()) if item["name"] == name), None)

    def set_env(self, name: str, value: str) -> None:
        """Set a variable; one that is there already keeps its place."""
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
        """Mount a volume at a path; what was mounted at that path makes room."""
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
        """Mount a volume somewhere else, if it is mounted at all."""
        for entry in self.manifest.get("volumeMounts", ()):
            if entry["name"] == volume:
                entry["mountPath"] = path


class DaemonSet:
    """A DaemonSet and the pod it makes."""

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

    def containers(self) -> Iterator[Container]:
        """All containers, those that run first included."""
        for part in ("initContainers", "containers"):
            for manifest in self.pod.get(part, ()):
                yield Container(manifest)

    def has(self, name: str) -> bool:
        return any(container.name == name for container in self.containers())

    def container(self, name: str) -> Container:
        for container in self.containers():
            if container.name == name:
                return container
        raise KeyError(name)

    @property
    def main(self) -> Container:
        return Container(self.pod["containers"][0])

    def drop(self, *names: str) -> None:
        """Remove containers, where they are."""
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
        """Add a volume, or put another source into its place: `add_volume("x", hostPath={"path": "/x"})`."""
        others = [volume for volume in self.pod.get("volumes", ()) if volume["name"] != name]
        self.pod["volumes"] = [*others, {"name": name, **source}]

    def drop_volume(self, name: str) -> None:
        """Remove a volume and everything that mounts it."""
        self.pod["volumes"] = [volume for volume in self.pod.get("volumes", ()) if volume["name"] != name]
        for container in self.containers():
            container.unmount(name)

    def move_host_path(self, volume: str, path: str) -> None:
        """Let a volume show another folder of the host, if there is such a volume."""
        if self.has_volume(volume):
            self.volume(volume)["hostPath"]["path"] = path

    def label(self, labels: Mapping[str, str], *, protected: Iterable[str] = ()) -> None:
        """Labels of the DaemonSet and of its pods; those of the pods that are protected stay."""
        self.manifest["metadata"].setdefault("labels", {}).update(labels)
        pods = self.template["metadata"].setdefault("labels", {})
        pods.update({key: value for key, value in labels.items() if key not in set(protected)})

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Annotations of the DaemonSet and of its pods."""
        for metadata in (self.manifest["metadata"], self.template["metadata"]):
            if annotations:
                metadata.setdefault("annotations", {}).update(annotations)

    def select(self, labels: Mapping[str, str]) -> None:
        """Restrict the nodes that the pods go to further."""
        self.pod.setdefault("nodeSelector", {}).update(labels)
