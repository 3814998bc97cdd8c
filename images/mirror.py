"""Debian's package files: from the cache, a mirror, or the archive's history, and never other than recorded."""

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.progress import Progress
from images.errors import MirrorFailed, PackageGone, WrongContent
from images.lock import Lock, Package

MIRROR_VARIABLE = "DEBIAN_MIRROR"
HISTORY_VARIABLE = "DEBIAN_SNAPSHOT"
_MIRROR = "http://deb.debian.org"  # plain on purpose: what arrives is checked against the record
_HISTORY = "http://snapshot.debian.org"
_TIMEOUT = 30.0
_NOT_FOUND = 404


def mirror() -> str:
    """The root of a Debian mirror, which holds `debian` and `debian-security`."""
    return os.environ.get(MIRROR_VARIABLE, _MIRROR).rstrip("/")


def package_files(lock: Lock, progress: Progress, cache: Path | None = None) -> dict[Package, Path]:
    """The files of all recorded packages, in the cache folder afterwards."""
    folder = (cache or cache_folder()) / "debian"
    folder.mkdir(parents=True, exist_ok=True)
    files = {package: folder / f"{package.sha256}.deb" for package in lock.packages}
    missing = [package for package, file in files.items() if not _holds(file, package)]
    with progress.step(f"Fetching Debian packages for {lock.architecture}") as step:
        for number, package in enumerate(missing, 1):
            step.detail(f"{number} of {len(missing)}, {package.name}")
            _keep(_fetch(package, lock, progress), package, files[package])
    return files


def _holds(file: Path, package: Package) -> bool:
    return file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == package.sha256


def _keep(content: bytes, package: Package, file: Path) -> None:
    """Whole or not at all: several builds may fill the cache at once."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != package.sha256:
        raise WrongContent(
            f"{package.name} {package.version} was refused: its SHA-256 is {actual}, and {package.sha256} is recorded."
            f" A proxy or mirror on the way changes files; choose another mirror with {MIRROR_VARIABLE}."
        )
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as unfinished:
        unfinished.write(content)
    Path(unfinished.name).replace(file)


def _fetch(package: Package, lock: Lock, progress: Progress) -> bytes:
    try:
        return _get(f"{mirror()}/{urllib.parse.quote(package.path)}")
    except PackageGone:
        progress.note(f"{package.name} {package.version} has left the mirror: asking the archive's history.")
    try:
        return _get(_in_history(package, lock))
    except (PackageGone, MirrorFailed) as error:
        raise PackageGone(
            f"{package.name} {package.version} ({lock.architecture}) is recorded, but {mirror()} no longer serves it"
            f" and the archive's history does not help: {error} Debian has a newer version: run `make image-lock` to"
            f" record today's packages and look at the difference, or set {MIRROR_VARIABLE} or {HISTORY_VARIABLE} to"
            " hosts that have it."
        ) from None


def _in_history(package: Package, lock: Lock) -> str:
    archive, _, path = package.path.partition("/")
    host = os.environ.get(HISTORY_VARIABLE, _HISTORY).rstrip("/")
    return f"{host}/archive/{archive}/{lock.resolved:%Y%m%dT%H%M%SZ}/{urllib.parse.quote(path)}"


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 - hosts that the user chose
            content: bytes = response.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _NOT_FOUND:
            raise PackageGone(f"{url} does not exist.") from None
        raise MirrorFailed(f"{url} answered {error.code} {error.reason}. Try again later.") from None
    except (OSError, http.client.HTTPException) as error:
        raise MirrorFailed(
            f"{url} cannot be fetched: {error}. Without a network, copy the cache folder of a machine that has built"
            f" the image; behind a proxy, set http_proxy; {MIRROR_VARIABLE} chooses another mirror."
        ) from None
    return content
