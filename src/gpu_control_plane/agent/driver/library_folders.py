"""The folders in which a driver's libraries may be under a root file system, best first.

Distributions, driver containers and clouds have different ones. Mounted file systems come last, for hosts that bring
the driver as a read-only mount; a library found there runs with the agent's privileges, so mounts that a pod could have
written to (its root file system, its volumes) are left out.
"""

import os
import posixpath
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Self

import msgspec

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
"""Folders of vendors' toolkits with libraries that are not the driver's: for compatibility, and for linking only."""
_OF_PODS: Final = frozenset(
    {"containerd", "containers", "cri-o", "crio", "docker", "k0s", "k3s", "kubelet", "pods", "rke2", "snap", "volumes"}
)
"""Folders in which container runtimes and kubelets keep files of pods."""
_FILE_SYSTEMS: Final = frozenset({"9p", "btrfs", "erofs", "ext4", "iso9660", "squashfs", "tmpfs", "virtiofs", "xfs"})
"""File systems that can hold a driver and need no network."""
_MOUNT_FIELDS: Final = 4
_MAX_LINKS: Final = 40
_CACHE_MAGIC: Final = b"glibc-ld.so.cache1.1"
_CACHE_HEADER: Final = struct.Struct("<20sII20x")
_CACHE_ENTRY: Final = struct.Struct("<iIIIQ")


class SearchContext(msgspec.Struct, frozen=True):
    """What this process knows about further folders."""

    mounts: str = ""
    """As `/proc/mounts` has it."""
    library_path: str = ""
    """As `LD_LIBRARY_PATH` has it: of this process, so it applies to the root `/` alone."""

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(Path("/proc/self/mounts").read_text(errors="replace"), os.environ.get("LD_LIBRARY_PATH", ""))


def library_folders(root: Path, context: SearchContext, own: Iterable[str]) -> Iterator[Path]:
    """The folders under the root to look for a driver in, best first, each once.

    `own` are those in which images and clouds keep nothing but this vendor's driver.
    """
    seen: set[Path] = set()
    for folder in _candidates(root, context, own):
        real = resolved(root, root / folder.relative_to("/"))
        if real is None or real in seen or not real.is_dir() or _NOT_THE_DRIVER & set(real.relative_to(root).parts):
            continue
        seen.add(real)
        yield real


def resolved(root: Path, path: Path) -> Path | None:
    """A path under the root with every link followed as a process with that root would follow it.

    A driver container's links are absolute and mean its own file system. None for links that form a cycle.
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


def _candidates(root: Path, context: SearchContext, own: Iterable[str]) -> Iterator[PurePosixPath]:
    yield from map(PurePosixPath, (*SYSTEM_FOLDERS, *own))
    cache = root / "etc/ld.so.cache"
    if cache.is_file():
        yield from cached_folders(cache.read_bytes())
    if root == Path("/"):
        yield from (PurePosixPath(folder) for folder in context.library_path.split(":") if folder.startswith("/"))
    yield from _mounted(root, context.mounts)


def _mounted(root: Path, mounts: str) -> Iterator[PurePosixPath]:
    """The folders of read-only mounts under the root: a driver's folder, or single files that are bind-mounted."""
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
    """A path from `/proc/mounts`, where blanks, tabs, line ends and backslashes are octal."""
    for code, meaning in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, meaning)
    return posixpath.normpath(field)


def cached_folders(data: bytes) -> tuple[PurePosixPath, ...]:
    """The folders of the libraries in an `ld.so.cache`, in its order; none where it cannot be understood.

    Read without ldconfig, which a bare host or a driver image may not have. Since glibc 2.32 this format stands alone;
    before, it follows an older one, so its beginning is searched for.
    """
    return tuple(dict.fromkeys(PurePosixPath(path).parent for path in _cached_paths(data)))


def _cached_paths(data: bytes) -> Iterator[str]:
    start = data.find(_CACHE_MAGIC)
    if start < 0 or len(data) < start + _CACHE_HEADER.size:
        return
    _, count, _ = _CACHE_HEADER.unpack_from(data, start)
    for number in range(count):
        at = start + _CACHE_HEADER.size + _CACHE_ENTRY.size * number
        if at + _CACHE_ENTRY.size > len(data):
            return
        _, _, path, _, _ = _CACHE_ENTRY.unpack_from(data, at)
        end = data.find(b"\0", start + path)
        if end > 0:
            yield data[start + path : end].decode(errors="replace")
