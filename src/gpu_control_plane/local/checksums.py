"""Checksums of official downloads, recorded in the repository: what changes at its publisher afterwards is refused.

A publisher's own checksum says that a file has arrived whole. It comes from the same host as the file, so whoever
changes one can change the other; what is recorded here, nobody but a reviewed commit changes.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.releases import Artefact, Origins, artefact
from gpu_control_plane.local.versions import MONITORING_RELEASES, RELEASES, TEST_RELEASES

FILE: Final = Path(__file__).parent / "checksums.txt"
_PLATFORMS: Final = tuple(Platform(os, arch) for os in ("linux", "darwin") for arch in ("amd64", "arm64"))
_HEADER: Final = """\
# SHA-256 of official downloads, by their official address. Written by `make checksums`, which needs their hosts.
# A file that is listed is refused if it differs; one that is not has to fit what its publisher says.
"""


def read_checksums(file: Path = FILE) -> dict[str, str]:
    """The recorded checksums, by official address."""
    lines = (line.split() for line in file.read_text().splitlines() if line and not line.startswith("#"))
    return {url: checksum for checksum, url in lines}


def recorded_checksum(program: str, platform: Platform, recorded: Mapping[str, str]) -> str | None:
    """The checksum of the file with this program, whatever mirror it comes from; None if none is recorded."""
    official = artefact(program, platform, Origins())
    return recorded.get(official.url) if official is not None else None


def record_checksums(hosts: Origins, published: Callable[[Artefact], str], file: Path = FILE) -> int:
    """Write the checksums that publishers give for all releases and platforms; how many there are."""
    found = {official: published(mirrored) for official, mirrored in _published_files(hosts)}
    file.write_text(_HEADER + "".join(f"{checksum}  {url}\n" for url, checksum in sorted(found.items())))
    return len(found)


def _published_files(hosts: Origins) -> Iterator[tuple[str, Artefact]]:
    """Every file, once: its official address, and where it is on these hosts."""
    programs = [name for release in (*RELEASES, *TEST_RELEASES, *MONITORING_RELEASES) for name in release.programs]
    seen = set()
    for platform in _PLATFORMS:
        for program in programs:
            official, mirrored = artefact(program, platform, Origins()), artefact(program, platform, hosts)
            if official is not None and mirrored is not None and official.url not in seen:
                seen.add(official.url)
                yield official.url, mirrored
