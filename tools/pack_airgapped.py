"""Packs all that `make test-gpu` needs into one file, for a machine with a card and without a network.

`make airgapped` writes `build/airgapped/bundle.tar.xz`: the cluster's programs in the layout of their cache, what a
node takes from the distribution, and the Python packages of the lock file for Ubuntu 24.04's interpreter. One archive
and a window that spans it, since programs written in Go have much in common.
"""

import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gpu_control_plane.local import Component, ensure_binaries
from gpu_control_plane.local.node.requirements import PLUGINS, system_programs
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import NODE_PROGRAMS, release_of

BUNDLE = Path("build/airgapped/bundle.tar.xz")
PYTHON = "3.12"
"""What the machines have that this is made for."""
_PLATFORM = "x86_64-manylinux_2_28"
_PROGRAMS = (
    *(Component.ETCD, Component.APISERVER, Component.CONTROLLER_MANAGER, Component.SCHEDULER, "kubectl"),
    *NODE_PROGRAMS,
)
_NOT_NEEDED = (
    *("grpcio-tools", "import-linter", "mypy", "playwright", "pytest-xdist", "ruff"),
    *("types-grpcio", "types-protobuf", "types-pyyaml"),
)
"""Of the development tools, those that no test on a card uses."""
_FILTERS = (
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 256 << 20},
)


def main() -> int:
    BUNDLE.parent.mkdir(parents=True, exist_ok=True)
    unfinished = BUNDLE.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as folder, lzma.open(unfinished, "wb", filters=_FILTERS) as packed:
        packages = _packages(Path(folder))
        with tarfile.open(fileobj=packed, mode="w|") as tar:
            _add(tar, [*_cluster(), *_system(), *_files(packages, PurePosixPath("site-packages"))])
    unfinished.replace(BUNDLE)
    sys.stdout.write(f"{BUNDLE}: {BUNDLE.stat().st_size / (1 << 20):.1f} MiB\n")
    return 0


def _cluster() -> Iterator[tuple[PurePosixPath, Path]]:
    """The cluster's programs where the cache would have them."""
    store = Store(Path("cache"), this_platform())
    for program, binary in ensure_binaries(_PROGRAMS).programs.items():
        yield PurePosixPath(store.release_folder(release_of(program)) / program), binary.path.resolve()


def _system() -> Iterator[tuple[PurePosixPath, Path]]:
    system = system_programs()
    for program in (system.runc, system.busybox):
        yield PurePosixPath("system/bin") / program.name, program.resolve()
    for plugin in PLUGINS:
        yield PurePosixPath("system/cni") / plugin, (system.plugins / plugin).resolve()


def _packages(folder: Path) -> Path:
    """The packages of the lock file, unpacked: the target may lack pip."""
    uv = [os.environ["UV"]]
    pruned = [part for name in _NOT_NEEDED for part in ("--prune", name)]
    export = ["export", "--quiet", "--locked", "--no-emit-project", "--all-groups", "--no-header", "--no-annotate"]
    wanted = folder / "requirements.txt"
    subprocess.run([*uv, *export, *pruned, "--output-file", str(wanted)], check=True, stdout=subprocess.DEVNULL)
    target = folder / "site-packages"
    pinned = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirements", str(wanted)]
    kind = ["--python-version", PYTHON, "--python-platform", _PLATFORM, "--target", str(target)]
    subprocess.run([*uv, "pip", "install", "--quiet", *kind, *pinned], check=True)
    return target


def _files(folder: Path, place: PurePosixPath) -> Iterator[tuple[PurePosixPath, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            yield place / path.relative_to(folder), path


def _add(tar: tarfile.TarFile, files: list[tuple[PurePosixPath, Path]]) -> None:
    """Each file once: a program of many names gets a link for each of the others."""
    packed: dict[Path, str] = {}
    for place, path in files:
        entry = tar.gettarinfo(str(path), arcname=str(place))
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        if path in packed:
            entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, packed[path], 0
            tar.addfile(entry)
            continue
        entry.type = tarfile.REGTYPE
        packed[path] = str(place)
        with path.open("rb") as content:
            tar.addfile(entry, content)


if __name__ == "__main__":
    sys.exit(main())
