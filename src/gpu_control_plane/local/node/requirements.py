"""What a real node needs of the host: Linux, root, and a few packages that every distribution has."""

import os
import shutil
import sys
from pathlib import Path

import msgspec

from gpu_control_plane.local.errors import LocalError

PLUGINS = ("ptp", "host-local", "loopback")
_PLUGIN_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_PROGRAM_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_DYNAMIC = b"/ld-"  # the loader that a dynamic program asks for, near its beginning
_BEGINNING = 4096


class SystemPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """Programs of the distribution."""

    runc: Path
    plugins: Path
    """The folder of CNI plugins."""
    busybox: Path
    """The content of the pause image and of test images: statically linked."""
    nft: Path | None = None
    """What kube-proxy runs; only nodes with Services need it."""


class NodeImpossible(LocalError):
    """This machine cannot run a real node as it is."""


def system_programs(*, services: bool = False) -> SystemPrograms:
    """The distribution's programs for a node, with Services or without. `NodeImpossible` names all that is missing."""
    if sys.platform != "linux":
        raise NodeImpossible("A real node needs Linux. Use simulated nodes here.")
    if os.geteuid() != 0:
        raise NodeImpossible("A real node needs root, as containers do. Use simulated nodes, or become root.")
    runc, plugins, busybox = _program("runc"), _plugins(), _static_busybox()
    nft = _program("nft")
    if runc and plugins and busybox and (nft or not services):
        return SystemPrograms(runc=runc, plugins=plugins, busybox=busybox, nft=nft)
    wanted = {"runc": runc, "containernetworking-plugins": plugins, "busybox-static": busybox}
    wanted |= {"nftables": nft} if services else {}
    missing = " ".join(package for package, found in wanted.items() if found is None)
    raise NodeImpossible(
        f"A real node needs {missing}, as Debian names these packages. Run `tools/system-packages`, or"
        f" `apt-get install {missing}`. Elsewhere, have runc, nft and a static busybox on PATH, and the CNI plugins"
        f" {', '.join(PLUGINS)} in a folder that CNI_PATH names."
    )


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_PROGRAM_FOLDERS)))
    return Path(found) if found else None


def _plugins() -> Path | None:
    chosen = os.environ.get("CNI_PATH", "").split(os.pathsep)
    folders = (Path(folder) for folder in (*chosen, *_PLUGIN_FOLDERS) if folder)
    return next((folder for folder in folders if all((folder / plugin).exists() for plugin in PLUGINS)), None)


def _static_busybox() -> Path | None:
    busybox = _program("busybox")
    if busybox is None:
        return None
    with busybox.open("rb") as file:
        return None if _DYNAMIC in file.read(_BEGINNING) else busybox
