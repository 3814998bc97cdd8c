"""Finding the cluster's programs: the environment, the cache, official downloads, a build with Go, in this order."""

import os
import sys
from collections.abc import Iterable, Mapping

from gpu_control_plane.local import downloads, gobuild
from gpu_control_plane.local.checksums import read_checksums, recorded_checksum
from gpu_control_plane.local.environment import named_by_environment
from gpu_control_plane.local.errors import BinaryUnavailable, BuildFailed, DownloadFailed
from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.platforms import Platform, this_platform
from gpu_control_plane.local.programs import Binaries, Binary
from gpu_control_plane.local.progress import Lines, Progress
from gpu_control_plane.local.releases import Origins, artefact, origins
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import NODE_PROGRAMS, SERVICE_PROGRAMS, Release, release_of


def ensure_binaries(
    programs: Iterable[str],
    progress: Progress | None = None,
    environ: Mapping[str, str] = os.environ,
    recorded: Mapping[str, str] | None = None,
) -> Binaries:
    """Make sure that these programs can be run, downloading or building what is missing.

    Safe to call from many processes at once: one of them installs, the others wait. Without `progress`, plain
    lines go to standard error for whatever takes more than two seconds. `recorded` are checksums of downloads, by
    default those of the repository.
    """
    recorded = read_checksums() if recorded is None else recorded
    return _Search(progress or Lines(sys.stderr), environ, recorded).all(dict.fromkeys(programs))


class _Search:
    def __init__(self, progress: Progress, environ: Mapping[str, str], recorded: Mapping[str, str]) -> None:
        self._recorded = recorded
        self._progress = progress
        self._environ = environ
        self._platform: Platform = this_platform()
        self._store = Store(cache_folder(environ), self._platform)
        self._origins: Origins = origins(environ)
        self._unreachable_hosts: dict[str, str] = {}

    def all(self, programs: Iterable[str]) -> Binaries:
        found = {program: self._installed(program) for program in programs}
        missing = [program for program, binary in found.items() if binary is None]
        if missing:
            with self._store.locked(self._progress):
                for program in missing:
                    found[program] = self._cached(program) or self._install(program)
        return Binaries({program: binary for program, binary in found.items() if binary is not None})

    def _installed(self, program: str) -> Binary | None:
        named = named_by_environment(program, self._environ, self._progress)
        return Binary(*named) if named else self._cached(program)

    def _cached(self, program: str) -> Binary | None:
        path = self._store.find(program)
        return Binary(path, release_of(program).version) if path else None

    def _install(self, program: str) -> Binary:
        release = release_of(program)
        try:
            self._download(program, release)
        except DownloadFailed as no_download:
            self._progress.note(f"No download of {program}: {no_download}")
            try:
                self._build(release)
            except BuildFailed as no_build:
                raise BinaryUnavailable(
                    f"{program} {release.version} could not be had. Downloading: {no_download} Building: {no_build}"
                ) from no_build
        binary = self._cached(program)
        if binary is None:
            raise BinaryUnavailable(f"{release.name} {release.version} was installed but does not hold {program}.")
        return binary

    def _download(self, program: str, release: Release) -> None:
        source = artefact(program, self._platform, self._origins)
        if source is None:
            raise DownloadFailed(f"it is not published for {self._platform}.")
        title = f"Downloading {program} {release.version}"
        recorded = recorded_checksum(program, self._platform, self._recorded)
        for url in (source.url,) if recorded else (source.checksum_url, source.url):
            if reason := self._unreachable_hosts.get(_host(url)):
                raise DownloadFailed(reason)
        with self._progress.step(title) as step, self._store.partial() as partial:
            try:
                files = downloads.download(source, partial, self._store, step, recorded)
            except downloads.HostUnreachable as error:
                self._unreachable_hosts[error.host] = str(error)
                raise
            for name, file in files.items():
                self._store.keep(file, release, name)

    def _build(self, release: Release) -> None:
        title = f"Building {release.name} {release.version} with Go"
        with self._progress.step(title) as step, self._store.partial() as partial:
            for result in gobuild.build(release, partial, self._store, step, self._environ):
                self._store.keep(result, release, result.name)
        for program in release.programs:
            if self._platform.os == "linux" or program not in (*NODE_PROGRAMS, *SERVICE_PROGRAMS):
                self._store.link(release, program, release.name)


def _host(url: str) -> str:
    return url.split("/")[2]
