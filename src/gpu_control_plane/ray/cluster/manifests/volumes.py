"""Volumes that Ray needs: shared memory for its objects, and logs that several containers read."""

from typing import Any, Final

from gpu_control_plane.ray.cluster.manifests.containers import Part, add_mount, add_volume, has_mount

_SHARED_MEMORY: Final = "shared-mem"
_SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where Ray keeps objects
_LOGS: Final = "ray-logs"
_LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - where Ray writes its logs


def mount_shared_memory(spec: Part, container: Part) -> None:
    """Give the Ray container shared memory, as much as it may use altogether."""
    if has_mount(container, path=_SHARED_MEMORY_PATH):
        return
    resources = container.get("resources") or {}
    empty: dict[str, Any] = {"medium": "Memory"}
    for kind in ("limits", "requests"):
        size = (resources.get(kind) or {}).get("memory")
        if size is not None:
            empty["sizeLimit"] = size
            break
    add_volume(spec, _SHARED_MEMORY, {"emptyDir": empty})
    add_mount(container, _SHARED_MEMORY, _SHARED_MEMORY_PATH)


def mount_logs(spec: Part, *containers: Part) -> None:
    """Let containers of a pod see Ray's logs."""
    for container in containers:
        if not has_mount(container, path=_LOGS_PATH):
            add_volume(spec, _LOGS, {"emptyDir": {}})
            add_mount(container, _LOGS, _LOGS_PATH)
