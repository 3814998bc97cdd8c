"""Building a release from the Go module proxy, for machines that reach no download host.

`gomodules/<release>/` pins every dependency with its checksum, so a build is the same everywhere and needs no trust
in the proxy it came through.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.disk import free_bytes
from gpu_control_plane.local.errors import BuildFailed, LocalError, NoSpace
from gpu_control_plane.local.progress import Step, megabytes
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import (
    CONTAINERD,
    COREDNS,
    DEX,
    ETCD,
    HELM,
    KUBE_STATE_METRICS,
    KUBECONFORM,
    KUBERNETES,
    KWOK,
    NFD,
    Release,
)

GO_VARIABLE = "GPU_CONTROL_PLANE_GO"

_MODULES = Path(__file__).parent / "gomodules"
_OLDEST_GO = (1, 21)  # the first that fetches the toolchain a module asks for
_NO_SPACE_MESSAGE = "no space left on device"
_USUAL_PLACES = ("/usr/local/go/bin/go", "/opt/homebrew/bin/go", "/usr/lib/go/bin/go")
_LAST_LINES = 15
_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
_NFD_MODULE = "sigs.k8s.io/node-feature-discovery"


class Recipe(msgspec.Struct, frozen=True):
    """How a release's module is built: the packages, the room it takes meanwhile, what is stamped into it."""

    packages: tuple[str, ...]
    room: int
    stamp: str | None = None
    """The variable that holds the version."""
    variables: dict[str, str] = {}
    """Others that are set while linking, as the publisher does for its own builds."""


RECIPES = {
    KUBERNETES: Recipe(packages=(".",), room=2_500_000_000, stamp="k8s.io/component-base/version.gitVersion"),
    ETCD: Recipe(packages=(".",), room=400_000_000),
    KWOK: Recipe(
        packages=("sigs.k8s.io/kwok/cmd/kwok",), room=1_000_000_000, stamp="sigs.k8s.io/kwok/pkg/consts.Version"
    ),
    CONTAINERD: Recipe(
        packages=tuple(f"{_CONTAINERD_MODULE}/cmd/{program}" for program in CONTAINERD.programs),
        room=1_000_000_000,
        stamp=f"{_CONTAINERD_MODULE}/version.Version",
    ),
    COREDNS: Recipe(packages=(".",), room=600_000_000),
    HELM: Recipe(
        packages=("helm.sh/helm/v3/cmd/helm",), room=1_500_000_000, stamp="helm.sh/helm/v3/internal/version.version"
    ),
    KUBECONFORM: Recipe(
        packages=("github.com/yannh/kubeconform/cmd/kubeconform",), room=200_000_000, stamp="main.version"
    ),
    NFD: Recipe(
        packages=tuple(f"{_NFD_MODULE}/cmd/{program}" for program in NFD.programs),
        room=800_000_000,
        stamp=f"{_NFD_MODULE}/pkg/version.version",
        # Published images look for the host in /host-sys and so on. Without the slash that is in the working folder.
        variables={f"{_NFD_MODULE}/pkg/utils/hostpath.pathPrefix": "host-"},
    ),
    DEX: Recipe(packages=("github.com/dexidp/dex/cmd/dex",), room=1_000_000_000, stamp="main.version"),
    KUBE_STATE_METRICS: Recipe(
        packages=("k8s.io/kube-state-metrics/v2",),
        room=1_000_000_000,
        stamp="github.com/prometheus/common/version.Version",
    ),
}


def module_folder(release: Release) -> Path:
    return _MODULES / release.name


def build(
    release: Release, into: Path, store: Store, step: Step, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """Build a release into `into`. A file with the name of the release is a multi-call binary for all its programs."""
    recipe = RECIPES[release]
    with store.room_for(f"building {release.name}", recipe.room):
        go = _Go(find_go(environ), module_folder(release), _environment(environ, into))
    try:
        step.detail("fetching modules")
        total = len(go.run(["list", "-deps", *recipe.packages], step).splitlines())
        stamp = {recipe.stamp: release.version} if recipe.stamp else {}
        linked = "".join(f" -X {name}={value}" for name, value in (stamp | recipe.variables).items())
        results = into / "programs"
        results.mkdir()
        flags = ["-v", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w{linked}"]
        go.run(["build", *flags, "-o", f"{results}/", *recipe.packages], step, total)
    except _GoFailed as failed:
        raise _explain(failed, release, go, store) from None
    return sorted(results.iterdir())


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


class _GoFailed(Exception):
    """Go ended with an error; the lines are what it said."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class _Go(msgspec.Struct, frozen=True):
    """A toolchain at work in one module."""

    program: str
    folder: Path
    environ: dict[str, str]

    def run(self, arguments: list[str], step: Step, packages: int | None = None) -> str:
        """Run Go to its end. Interrupting ends it too, with all it started."""
        process = processes.spawn(
            [self.program, *arguments], output=subprocess.PIPE, environ=self.environ, cwd=self.folder
        )
        lines: list[str] = []
        try:
            for raw in process.stdout or ():
                line = raw.decode(errors="replace").rstrip()
                if line.startswith("go: downloading "):
                    step.detail(f"fetching {line.split()[2]}")
                else:
                    lines.append(line)
                    if packages:
                        step.detail(f"{len(lines)} of {packages} packages compiled")
            code = process.wait()
        finally:
            processes.end(process, timeout=2)
            if process.stdout:
                process.stdout.close()
        if code != 0:
            raise _GoFailed([line for line in lines if not _is_package(line)])
        return "\n".join(lines)

    def folders(self) -> str:
        """Where Go keeps its caches, and how much room there is."""
        answer = subprocess.run(
            [self.program, "env", "GOCACHE", "GOMODCACHE"],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        existing = [path for line in answer.stdout.splitlines() if (path := Path(line)).exists()]
        return " and ".join(f"{path} ({megabytes(free_bytes(path))} free)" for path in existing)


def _is_package(line: str) -> bool:
    return " " not in line and not line.startswith("#") and ":" not in line


def _explain(failed: _GoFailed, release: Release, go: _Go, store: Store) -> LocalError:
    room = RECIPES[release].room
    if _NO_SPACE_MESSAGE not in str(failed):
        end = "\n  ".join(failed.lines[-_LAST_LINES:])
        return BuildFailed(f"Building {release.name} {release.version} with Go failed. Go says:\n  {end}")
    if free_bytes(store.folder) < room:
        return store.no_space(f"building {release.name}", room)
    return NoSpace(
        f"Building {release.name} {release.version} filled a disk. Go keeps its caches in {go.folders()}."
        " Make room there, or choose other folders with GOCACHE and GOMODCACHE."
    )
