"""The files of the driver's user space, and which of them a container needs.

No list of them exists: the driver comes from packages, from a driver container, from an image with a folder of its own,
or as single files mounted into the agent's container. So its libraries are searched for, and everything else is looked
for near them. All paths are as this process sees them; `injection` turns them into the host's.
"""

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError
from gpu_control_plane.agent.driver.elf import read_library
from gpu_control_plane.agent.driver.library_folders import SearchContext, library_folders, resolved

_FOLDERS: Final = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/opt/nvidia/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
)
"""Where images and clouds keep nothing but the driver."""
_CUDA: Final = "libcuda.so"
_MARKERS: Final = (_CUDA, "libnvidia-ml.so")
"""In the folder of one of these is the rest of the driver, and the end of its name is the driver's version."""
_OWN_VERSIONS: Final = ("libnvidia-egl-*.so.*", "libnvidia-nvvm70.so.*", "libnvidia-api.so.*")
"""Libraries of the driver with versions of their own."""
_VERSIONED: Final = re.compile(r".*\.so\.(?P<version>[0-9]+(\.[0-9]+)+)")
_BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_BINARY_FOLDERS: Final = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin", "opt/bin")
_SOCKETS: Final = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
"""Without that of MPS: a pod that reached the host's daemon would share its card without the pool's knowledge."""
_SHARED_CONFIG: Final = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/*nvidia*.json",
    "vulkan/icd.d/nvidia_icd*.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "nvidia/nvoptix.bin",
)
_SYSTEM_CONFIG: Final = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "vulkan/icd.d/nvidia_icd*.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "OpenCL/vendors/nvidia.icd",
)


class DriverNotFound(BackendError):
    """There is no driver under any of the roots; the sentence says where it was looked for."""


class DriverLibrary(msgspec.Struct, frozen=True):
    """One library: a regular file, and the names under which programs may load it, that of the file first."""

    path: Path
    names: tuple[str, ...]


class DriverFile(msgspec.Struct, frozen=True):
    """A file or a socket, and the path where programs expect it."""

    path: Path
    expected: PurePosixPath


class DriverFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a container needs of the driver's user space, each kind in the order of its paths."""

    version: str
    triplet: str
    """The processor the libraries are for, such as `x86_64-linux-gnu`."""
    libraries: tuple[DriverLibrary, ...]
    binaries: tuple[DriverFile, ...] = ()
    firmware: tuple[DriverFile, ...] = ()
    sockets: tuple[DriverFile, ...] = ()
    config: tuple[DriverFile, ...] = ()
    """For EGL, Vulkan, OpenCL and OptiX."""


def find_driver_library(
    name: str, roots: Sequence[Path], context: SearchContext | None = None, *, version: str | None = None
) -> Path | None:
    """The file that a program should get which loads this library, such as `libnvidia-ml.so.1`.

    Each root is searched in turn; a library whose links are missing is recognised by its soname. With a version only a
    library of that driver counts.
    """
    known = context or SearchContext.of_this_process()
    stem = name.partition(".so")[0]
    for root in roots:
        for folder in library_folders(root, known, _FOLDERS):
            for path in (folder / name, *sorted(folder.glob(f"{stem}.so.*"))):
                library = _library(root, path)
                if library is None or (path.name != name and name not in library.names):
                    continue
                if version is None or _version(library.path) == version:
                    return library.path
    return None


def driver_files(
    roots: Sequence[Path], version: str | None = None, context: SearchContext | None = None
) -> DriverFiles:
    """Everything of the driver under the first root that has it; raises DriverNotFound.

    `version` is that of the kernel module, if it is known: libraries of another version do not work with it.
    """
    known = context or SearchContext.of_this_process()
    for root in roots:
        folders = tuple(library_folders(root, known, _FOLDERS))
        homes = [home for home in _homes(root, folders) if version in (None, home.version)]
        if homes:
            return _around(root, folders, [home for home in homes if home.version == homes[0].version])
    wanted = f"version {version}" if version else "any version"
    looked = ", ".join(map(str, roots))
    raise DriverNotFound(f"no driver libraries of {wanted} under {looked}: is the driver installed there?")


class _Home(msgspec.Struct, frozen=True):
    """A folder with a driver in it."""

    folder: Path
    version: str
    triplet: str


class _Found(msgspec.Struct, frozen=True):
    path: Path
    triplet: str
    names: tuple[str, ...]


def _homes(root: Path, folders: Iterable[Path]) -> Iterator[_Home]:
    for folder in folders:
        for marker in _MARKERS:
            for path in sorted(folder.glob(f"{marker}.*")):
                library = _library(root, path)
                if library is not None and (version := _version(library.path)):
                    yield _Home(library.path.parent, version, library.triplet)


def _version(library: Path) -> str | None:
    named = _VERSIONED.fullmatch(library.name)
    return named["version"] if named else None


def _around(root: Path, folders: Sequence[Path], homes: Sequence[_Home]) -> DriverFiles:
    version, triplet = homes[0].version, homes[0].triplet
    places = tuple(dict.fromkeys(home.folder for home in homes))
    beside = tuple(dict.fromkeys(place.parent for place in places))
    usual = (root / folder for folder in _BINARY_FOLDERS)
    return DriverFiles(
        version=version,
        triplet=triplet,
        libraries=_libraries(root, places, folders, version, triplet),
        binaries=_files(root, (*(place / "bin" for place in beside), *usual), _BINARIES, "/usr/bin", _is_program),
        firmware=_files(root, [root / "lib/firmware"], [f"nvidia/{version}/gsp*.bin"], "/lib/firmware", stat.S_ISREG),
        sockets=_files(root, [root / "run", root / "var/run"], _SOCKETS, "/run", stat.S_ISSOCK),
        config=(
            *_files(root, [root / "etc"], _SYSTEM_CONFIG, "/etc", stat.S_ISREG),
            *_files(
                root,
                (*(place / "share" for place in beside), root / "usr/share"),
                _SHARED_CONFIG,
                "/usr/share",
                stat.S_ISREG,
            ),
        ),
    )


def _libraries(
    root: Path, places: Sequence[Path], folders: Sequence[Path], version: str, triplet: str
) -> tuple[DriverLibrary, ...]:
    """Every library of the driver once, even if it is in two folders, and every name for one of them only.

    If two libraries could have a name, the links on the host decide, then the sonames.
    """
    found: dict[str, _Found] = {}
    for place in places:
        for pattern in (f"*.so.{version}", *_OWN_VERSIONS):
            for path in sorted(place.glob(pattern)):
                library = _library(root, path)
                if library is not None and library.triplet == triplet:
                    found.setdefault(library.path.name, library)
    libraries = [library for _, library in sorted(found.items())]
    links = _links(root, dict.fromkeys((*places, *folders)))
    owners = {library.path.name: library.path for library in libraries}
    for library in libraries:
        for name in links.get(library.path, ()):
            owners.setdefault(name, library.path)
    for library in libraries:
        for name in library.names:
            owners.setdefault(name, library.path)
    return tuple(
        DriverLibrary(library.path, tuple(name for name, owner in owners.items() if owner == library.path))
        for library in libraries
    )


def _links(root: Path, folders: Iterable[Path]) -> dict[Path, list[str]]:
    """The names of the links to each file."""
    links: dict[Path, list[str]] = {}
    for folder in folders:
        for link in sorted(folder.glob("lib*.so*")):
            if link.is_symlink() and (target := resolved(root, link)) is not None:
                links.setdefault(target, []).append(link.name)
    return links


def _library(root: Path, path: Path) -> _Found | None:
    """The library at a path, if there is one, with its file name and soname."""
    real = resolved(root, path)
    read = read_library(real) if real is not None and real.is_file() else None
    if real is None or read is None:
        return None
    names = [real.name, read.soname] if read.soname else [real.name]
    if read.soname == f"{_CUDA}.1":
        names.append(_CUDA)
    return _Found(real, read.triplet, tuple(dict.fromkeys(names)))


def _files(
    root: Path, folders: Iterable[Path], patterns: Sequence[str], expected: str, fits: Callable[[int], bool]
) -> tuple[DriverFile, ...]:
    """The files of a kind, in the order of the paths where programs expect them; the first folder wins."""
    files: dict[PurePosixPath, DriverFile] = {}
    for folder in filter(None, (resolved(root, folder) for folder in folders)):
        for pattern in patterns:
            for path in folder.glob(pattern):
                real = resolved(root, path)
                place = PurePosixPath(expected) / path.relative_to(folder)
                if real is not None and real.exists() and fits(real.stat().st_mode):
                    files.setdefault(place, DriverFile(real, place))
    return tuple(files[place] for place in sorted(files))


def _is_program(mode: int) -> bool:
    return stat.S_ISREG(mode) and bool(mode & 0o111)
