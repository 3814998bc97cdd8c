"""The configuration files of a container runtime: where they are on the host and in the toolkit's container. Pure.

People name other paths in the toolkit's environment, as k3s needs: a variable there holds a path of the host. The
container gets the same variable with the path at which that file is mounted.
"""

from pathlib import PurePosixPath
from typing import Final

import msgspec

from gpu_control_plane.operator.node_facts import ContainerRuntime
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest

_CONFIG: Final = "/runtime/config-dir"
_DROP_IN: Final = "/runtime/config-dir.d"
_SOCKET: Final = "/runtime/sock-dir"
_NRI_SOCKET: Final = "/runtime/nri-sock-dir"


class _Files(msgspec.Struct, frozen=True, kw_only=True):
    """Paths on the host; an empty one means that the runtime has no such file."""

    config: str
    drop_in: str = ""
    socket: str = ""


_FILES: Final = {
    ContainerRuntime.CONTAINERD: _Files(
        config="/etc/containerd/config.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
    ),
    ContainerRuntime.CRIO: _Files(config="/etc/crio/config.toml", drop_in="/etc/crio/crio.conf.d/99-nvidia.conf"),
    ContainerRuntime.DOCKER: _Files(config="/etc/docker/daemon.json", socket="/var/run/docker.sock"),
}


def mount_runtime_files(daemonset: DaemonSetManifest, runtime: ContainerRuntime) -> None:
    """Let the toolkit change the configuration of the runtime and restart it."""
    files, prefix = _FILES[runtime], runtime.name
    main = daemonset.main
    drop_in = main.env("RUNTIME_DROP_IN_CONFIG") or files.drop_in
    _mount_file(daemonset, f"{runtime.value}-config", _CONFIG, files.config, (f"{prefix}_CONFIG", "RUNTIME_CONFIG"))
    if files.drop_in:
        _mount_file(daemonset, f"{runtime.value}-drop-in-config", _DROP_IN, files.drop_in, ("RUNTIME_DROP_IN_CONFIG",))
        main.set_env("RUNTIME_DROP_IN_CONFIG_HOST_PATH", drop_in)
    if files.socket:
        names = (f"{prefix}_SOCKET", "RUNTIME_SOCKET")
        _mount_file(daemonset, f"{runtime.value}-socket", _SOCKET, files.socket, names, create=False)
    if sources := main.env("RUNTIME_CONFIG_SOURCE"):
        main.set_env("RUNTIME_CONFIG_SOURCE", ",".join(_on_host(source) for source in sources.split(",")))


def mount_nri_socket(daemonset: DaemonSetManifest) -> None:
    """Let the toolkit use the runtime's NRI socket; the configuration of the runtime is not changed."""
    _mount_file(daemonset, "nri-socket", _NRI_SOCKET, "/var/run/nri/nri.sock", ("NRI_SOCKET",))


def _mount_file(
    daemonset: DaemonSetManifest, volume: str, folder: str, default: str, names: tuple[str, ...], *, create: bool = True
) -> None:
    """Mount the folder of a file. The first of the variables that is set gives its path on the host, else it is
    `default`; afterwards all of them give its path in the container."""
    main = daemonset.main
    path = PurePosixPath(next((value for name in names if (value := main.env(name))), default))
    source = {"path": str(path.parent), **({"type": "DirectoryOrCreate"} if create else {})}
    daemonset.add_volume(volume, hostPath=source)
    main.mount(volume, folder)
    for name in names:
        main.set_env(name, f"{folder}/{path.name}")


def _on_host(source: str) -> str:
    """A further source of the runtime's configuration; a file is named by its path on the host."""
    kind, found, path = source.partition("=")
    return f"file=/host/{path.lstrip('/')}" if found and kind == "file" else source
