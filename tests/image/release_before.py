"""The release before this one, as users have it: its chart, and its image made by its own tool from its own lock.

There has been no release yet, so an early commit stands for it: the first one whose agent learns of pods from the
kubelet alone. Agents of the commits before it need a right that the chart has taken from agents since, to list pods:
they can be upgraded, and cannot work beside a controller of today. When there is a release, it goes here.

Chart and image are kept in the cache folder by their commit. `python -m image.release_before` prepares them, as
`make test` does.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import pytest

from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.locks import exclusive
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Lines, Progress, Quiet

COMMIT: Final = "5ed9f2f3dd7df93956b0f2ad2b0c2fa53e5da39c"
REPOSITORY, TAG = "localhost/gpu-control-plane", "before"
_PROJECT: Final = Path(__file__).parents[2]


class Unobtainable(Exception):
    """The release before cannot be made here; the message says why, and what to do."""


class ReleaseBefore(msgspec.Struct, frozen=True):
    chart: Path
    image: Path


def release_before() -> ReleaseBefore:
    """For tests. Where it cannot be made they are skipped, which only CI holds against us."""
    try:
        return prepare(Quiet())
    except Unobtainable as why:
        if os.environ.get("CI") == "true":
            pytest.fail(str(why))
        pytest.skip(str(why))


def prepare(progress: Progress) -> ReleaseBefore:
    """Take it from the cache folder, or make it."""
    folder = cache_folder() / "releases" / COMMIT
    found = ReleaseBefore(folder / "charts" / "gpu-control-plane", folder / f"image-{this_platform().arch}.tar")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / "lock", progress, "which is making the release before"):
        if not found.image.exists():
            with progress.step(f"Making the release before, {COMMIT[:7]}") as step:
                step.detail("its image")
                _make(folder, found.image)
    return found


def _make(folder: Path, image: Path) -> None:
    source = _git("archive", "--format=tar", COMMIT)
    with tempfile.TemporaryDirectory(prefix="release-before-") as scratch:
        tree = Path(scratch)
        with tarfile.open(fileobj=io.BytesIO(source)) as tar:
            tar.extractall(tree, filter="data")
        into = tree / "made"
        command = ("build", "--arch", this_platform().arch, "--name", f"{REPOSITORY}:{TAG}", "--into", str(into))
        environ = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "images", *command],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        if ran.returncode != 0:
            raise Unobtainable(f"The image of {COMMIT[:7]} cannot be made: {ran.stderr.strip().splitlines()[-1]}")
        folder.mkdir(exist_ok=True)
        shutil.copytree(tree / "charts", folder / "charts", dirs_exist_ok=True)
        (archive,) = into.glob("*.tar")
        part = image.with_suffix(".part")
        shutil.copyfile(archive, part)
        part.rename(image)


def _git(*arguments: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise Unobtainable("git is not there, and the release before comes from the history.")
    ran = subprocess.run([git, "-C", str(_PROJECT), *arguments], capture_output=True, check=False, timeout=60)
    if ran.returncode != 0:
        raise Unobtainable(
            f"The history does not reach {COMMIT[:7]}, which stands for the release before: in a shallow clone, run"
            " `git fetch --unshallow`."
        )
    return ran.stdout


if __name__ == "__main__":
    try:
        prepare(Lines(sys.stderr))
    except Unobtainable as why:
        sys.stderr.write(f"{why}\n")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
