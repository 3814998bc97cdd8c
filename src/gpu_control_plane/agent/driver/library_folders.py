"""Where a driver's libraries may lie under a root, best first.

Distributions, driver containers and clouds each have a place of their own. The last place to look is mounted file
systems, for hosts that bring the driver as a read-only mount; a library found there runs with the agent's rights, so
whatever a pod could have put there (its root file system, its volumes) is never looked at.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Self

import msgspec

from gpu_control_plane.agent.driver.ldcache import cached_folders

SYSTEM_FOLDERS: Final = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib",
)
"""Debian's and Red Hat's."""

_NOT_THE_DRIVER: Final = frozenset({"compat", "stubs"})
"""Folders of the CUDA toolkit with a libcuda that is not the driver's: for newer programs, and for linking only."""
_OF_PODS: Final = frozenset(
    {"containerd", "containers", "cri-o", "crio", "docker", "k0s", "k3s", "kubelet", "pods", "rke2", "snap", "volumes"}
)
"""Folders in which runtimes and kubelets keep what belongs to pods."""
_FILE_SYSTEMS: Final = frozenset({"9p", "btrfs", "erofs", "ext4", "iso9660", "squashfs", "tmpfs", "virtiofs", "xfs"})
"""File systems that can hold a driver and never keep a reader waiting for a network."""
_MOUNT_FIELDS: Final = 4
_MAX_LINKS: Final = 40


class Surroundings(msgspec.Struct, frozen=True):
    """What this process knows about places beyond the usual ones."""

    mounts: str = ""
    """As `/proc/mounts` has it."""
    library_path: str = ""
    """As `LD_LIBRARY_PATH` has it. It is this process's own, so it counts for the root `/` alone."""

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(Path("/proc/self/mounts").read_text(errors="replace"), os.environ.get("LD_LIBRARY_PATH", ""))


def library_folders(root: Path, surroundings: Surroundings, own: Iterable[str]) -> Iterator[Path]:
    """The folders under the root to look for a driver in, best first, each once.

    `own` are those in which images and clouds keep nothing but this vendor's driver.
    """
    seen: set[Path] = set()
    for folder in _candidates(root, surroundings, own):
        real = resolved(root, root / folder.relative_to("/"))
        if real is None or real in seen or not real.is_dir() or _NOT_THE_DRIVER & set(real.relative_to(root).parts):
            continue
        seen.add(real)
        yield real


def resolved(root: Path, path: Path) -> Path | None:
    """A path under the root with every link followed as a process living in that root would follow it.

    A driver container's links are absolute and mean its own file system, not ours. None for links that go in circles.
    """
    todo = list(reversed(path.relative_to(root).parts))
    done = root
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done.parent if done != root else root
            continue
        here = done / part
        if not here.is_symlink():
            done = here
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        target = here.readlink()
        if target.is_absolute():
            done, target = root, target.relative_to("/")
        todo.extend(reversed(target.parts))
    return done


def _candidates(root: Path, surroundings: Surroundings, own: Iterable[str]) -> Iterator[PurePosixPath]:
    yield from map(PurePosixPath, (*SYSTEM_FOLDERS, *own))
    cache = root / "etc/ld.so.cache"
    if cache.is_file():
        yield from cached_folders(cache.read_bytes())
    if root == Path("/"):
        yield from (PurePosixPath(folder) for folder in surroundings.library_path.split(":") if folder.startswith("/"))
    yield from _mounted(root, surroundings.mounts)


def _mounted(root: Path, mounts: str) -> Iterator[PurePosixPath]:
    """What read-only mounts under the root offer: a driver's folder, or single files bind-mounted side by side."""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < _MOUNT_FIELDS:
            continue
        _, written, file_system, options, *_ = fields
        point = Path(_unescaped(written))
        if file_system not in _FILE_SYSTEMS or "ro" not in options.split(",") or not point.is_relative_to(root):
            continue
        inside = PurePosixPath("/") / point.relative_to(root)
        if _OF_PODS & set(inside.parts):
            continue
        if ".so" in inside.name:
            yield inside.parent
        else:
            yield from (inside / "lib64", inside / "lib", inside)


def _unescaped(field: str) -> str:
    """A path as `/proc/mounts` writes it: blanks, tabs, line ends and backslashes are octal."""
    for code, meaning in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, meaning)
    return posixpath.normpath(field)
