"""The files by which a container runtime is configured: where they are on the host and in the toolkit's container.

People move them by the toolkit's environment, as on k3s: a variable with a path of the host means that path, and what
the container is told in its place is where it sees the file. Pure.
"""

from pathlib import PurePosixPath
from typing import Final

import msgspec

from gpu_control_plane.operator.node_facts import Runtime
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet

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
    Runtime.CONTAINERD: _Files(
        config="/etc/containerd/config.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
    ),
    Runtime.CRIO: _Files(config="/etc/crio/config.toml", drop_in="/etc/crio/crio.conf.d/99-nvidia.conf"),
    Runtime.DOCKER: _Files(config="/etc/docker/daemon.json", socket="/var/run/docker.sock"),
}


def show_runtime(daemonset: DaemonSet, runtime: Runtime) -> None:
    """Let the toolkit change the configuration of the runtime and restart it."""
    files, word = _FILES[runtime], runtime.name
    main = daemonset.main
    drop_in = main.env("RUNTIME_DROP_IN_CONFIG") or files.drop_in
    _show(daemonset, f"{runtime.value}-config", _CONFIG, files.config, (f"{word}_CONFIG", "RUNTIME_CONFIG"))
    if files.drop_in:
        _show(daemonset, f"{runtime.value}-drop-in-config", _DROP_IN, files.drop_in, ("RUNTIME_DROP_IN_CONFIG",))
        main.set_env("RUNTIME_DROP_IN_CONFIG_HOST_PATH", drop_in)
    if files.socket:
        names = (f"{word}_SOCKET", "RUNTIME_SOCKET")
        _show(daemonset, f"{runtime.value}-socket", _SOCKET, files.socket, names, create=False)
    if sources := main.env("RUNTIME_CONFIG_SOURCE"):
        main.set_env("RUNTIME_CONFIG_SOURCE", ",".join(_on_host(source) for source in sources.split(",")))


def show_nri(daemonset: DaemonSet) -> None:
    """Let the toolkit speak to the runtime's NRI socket; nothing of the runtime is changed."""
    _show(daemonset, "nri-socket", _NRI_SOCKET, "/var/run/nri/nri.sock", ("NRI_SOCKET",))


def _show(
    daemonset: DaemonSet, volume: str, folder: str, usual: str, names: tuple[str, ...], *, create: bool = True
) -> None:
    """Mount the folder of a file; variables by these names, the first first, say where it is, and then where it is in
    the container."""
    main = daemonset.main
    path = PurePosixPath(next((value for name in names if (value := main.env(name))), usual))
    source = {"path": str(path.parent), **({"type": "DirectoryOrCreate"} if create else {})}
    daemonset.add_volume(volume, hostPath=source)
    main.mount(volume, folder)
    for name in names:
        main.set_env(name, f"{folder}/{path.name}")


def _on_host(source: str) -> str:
    """A further source of the runtime's configuration; a file among them is one of the host."""
    kind, found, path = source.partition("=")
    return f"file=/host/{path.lstrip('/')}" if found and kind == "file" else source
