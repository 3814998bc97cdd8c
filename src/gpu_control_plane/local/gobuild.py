"""Building a release from the Go module proxy, for machines that reach no download host.

`gomodules/<release>/` pins every dependency with its checksum, so a build is the same everywhere and needs no trust
in the proxy it came through.
"""

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.progress import Step, megabytes
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import ETCD, KUBERNETES, KWOK, Release

GO_VARIABLE = "GPU_CONTROL_PLANE_GO"

_MODULES = Path(__file__).parent / "gomodules"
_OLDEST_GO = (1, 21)  # the first that fetches the toolchain a module asks for
_NO_ROOM = "no space left on device"
_USUAL_PLACES = ("/usr/local/go/bin/go", "/opt/homebrew/bin/go", "/usr/lib/go/bin/go")
_LAST_LINES = 15


class Recipe(msgspec.Struct, frozen=True):
    """How a release's module is built: the package, what is stamped into it, how large the result is."""

    package: str
    size: int
    stamp: str | None = None


RECIPES = {
    KUBERNETES: Recipe(package=".", size=150_000_000, stamp="k8s.io/component-base/version.gitVersion"),
    ETCD: Recipe(package=".", size=30_000_000),
    KWOK: Recipe(package="sigs.k8s.io/kwok/cmd/kwok", size=75_000_000, stamp="sigs.k8s.io/kwok/pkg/consts.Version"),
}


def module_folder(release: Release) -> Path:
    return _MODULES / release.name


def build(release: Release, into: Path, store: Store, step: Step, environ: Mapping[str, str] = os.environ) -> Path:
    """Build a release into `into`; the result answers to the name of each of its programs."""
    go = find_go(environ)
    recipe = RECIPES[release]
    folder = module_folder(release)
    with store.room_for(f"building {release.name}", recipe.size):
        environment = _environment(environ, into)
    step.detail("fetching modules")
    total = len(_run([go, "list", "-deps", recipe.package], folder, environment, step, release, store).splitlines())
    stamp = f" -X {recipe.stamp}={release.version}" if recipe.stamp else ""
    result = into / release.name
    arguments = [go, "build", "-v", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w{stamp}"]
    _run([*arguments, "-o", str(result), recipe.package], folder, environment, step, release, store, total)
    return result


def find_go(environ: Mapping[str, str] = os.environ) -> str:
    """A Go toolchain that can build the modules, or an error that says how to get one."""
    named = environ.get(GO_VARIABLE)
    candidates = [named] if named else ["go", *_USUAL_PLACES]
    for candidate in candidates:
        if (go := shutil.which(candidate, path=environ.get("PATH"))) is None:
            continue
        answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=60)
        found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
        if found and (int(found[1]), int(found[2])) >= _OLDEST_GO:
            return go
        raise BuildFailed(
            f"{go} is {answer.stdout.strip() or 'not usable'}; building needs Go 1.21 or newer. Install one from"
            f" https://go.dev/dl, or name another with {GO_VARIABLE}=/path/to/go."
        )
    raise BuildFailed(
        f"Go is not installed{f' at {named}' if named else ''}. Install it from https://go.dev/dl, or name it with"
        f" {GO_VARIABLE}=/path/to/go."
    )


def _environment(environ: Mapping[str, str], work: Path) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name not in ("GOOS", "GOARCH", "GOEXPERIMENT")}
    scratch = work / "scratch"
    scratch.mkdir()
    return {
        "GOTOOLCHAIN": "auto",
        **kept,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "GOTMPDIR": str(scratch),
    }


def _run(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    step: Step,
    release: Release,
    store: Store,
    total: int | None = None,
) -> str:
    process = processes.spawn(arguments, output=subprocess.PIPE, environ=environment, cwd=folder)
    assert process.stdout is not None  # noqa: S101
    lines: list[str] = []
    packages = 0
    try:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if line.startswith("go: downloading "):
                step.detail(f"fetching {line.split()[2]}")
                continue
            lines.append(line)
            if total is not None and _is_package(line):
                packages += 1
                step.detail(f"{packages} of {total} packages compiled" if packages < total else "linking")
        code = process.wait()
    finally:
        processes.end(process, patience=2)
        process.stdout.close()
    if code != 0:
        raise _failure(release, [line for line in lines if not _is_package(line)], environment, store)
    return "\n".join(lines)


def _is_package(line: str) -> bool:
    return " " not in line and not line.startswith("#") and ":" not in line


def _failure(release: Release, lines: list[str], environment: dict[str, str], store: Store) -> Exception:
    if any(_NO_ROOM in line for line in lines):
        size = RECIPES[release].size
        if shutil.disk_usage(store.folder).free < size:
            return store.no_space(f"building {release.name}", size)
        return BuildFailed(
            f"Building {release.name} {release.version} filled a disk: {_go_folders(environment)}. Make room there, or"
            " choose other folders with GOCACHE and GOMODCACHE."
        )
    end = "\n  ".join(deque(lines, _LAST_LINES))
    return BuildFailed(f"Building {release.name} {release.version} with Go failed. Go says:\n  {end}")


def _go_folders(environment: dict[str, str]) -> str:
    answer = subprocess.run(
        [find_go(environment), "env", "GOCACHE", "GOMODCACHE"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    folders = [Path(line) for line in answer.stdout.split() if Path(line).exists()]
    return ", ".join(f"{folder} ({megabytes(shutil.disk_usage(folder).free)} free)" for folder in folders)
