"""Programs that the environment names: `KUBEBUILDER_ASSETS` and PATH, used only in the right version."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gpu_control_plane.local.progress import Progress
from gpu_control_plane.local.versions import minor_in, release_of, version_in

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"

_VERSION_ARGUMENTS = {
    "kubectl": ["version", "--client"],
    "containerd-shim-runc-v2": ["-v"],
    "helm": ["version", "--short"],
    "kubeconform": ["-v"],
    "kube-state-metrics": ["version"],
}


def named_by_environment(program: str, environ: Mapping[str, str], progress: Progress) -> tuple[Path, str] | None:
    """The first program of this name in the minor version we pin, and its exact version.

    Progress says when one from `KUBEBUILDER_ASSETS` is not used, because it was chosen on purpose; PATH was not.
    """
    release = release_of(program)
    for path, chosen in _candidates(program, environ):
        version = reported_version(path)
        if version and minor_in(version) == release.minor:
            return path, version
        if chosen:
            progress.note(
                f"Passing over {path}, named by {ASSETS_VARIABLE}: it is {version or 'of no known version'},"
                f" and {release.minor} is needed."
            )
    return None


def _candidates(program: str, environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    if folder := environ.get(ASSETS_VARIABLE):
        path = Path(folder) / program
        if path.is_file() and os.access(path, os.X_OK):
            yield path.absolute(), True
    if found := shutil.which(program, path=environ.get("PATH", "")):
        yield Path(found).absolute(), False


@cache
def reported_version(path: Path) -> str | None:
    """The version that a program prints; None when it prints none."""
    question = _VERSION_ARGUMENTS.get(path.name, ["--version"])
    try:
        answer = subprocess.run(
            [str(path), *question], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return version_in(answer.stdout) if answer.returncode == 0 else None
