"""Which Debian packages the image needs today: apt answers, in a folder of its own, and checks Debian's signatures.

Nothing is installed and nothing is run, so an architecture can be resolved on a machine of another.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from images.errors import ImageError
from images.lock import SUITE, Package
from images.mirror import mirror

WANTED = (
    "base-files",  # what a Debian is: its release, its folders, the texts of common licences
    "ca-certificates",
    "libstdc++6",  # grpcio's and cryptography's wheels link it, as every manylinux wheel may
    "python3",
)
_SCRIPTS_ONLY = ("debconf", "debconf-2.0", "dpkg", "awk", "mawk", "openssl")
"""Dependencies of installation scripts. No such script runs here, so apt gets them as installed."""

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LINE = re.compile(r"'(?P<url>[^']+)' (?P<file>\S+) \d+ SHA256:(?P<sha256>[0-9a-f]{64})")


def resolve(architecture: str, wanted: tuple[str, ...] = WANTED) -> tuple[Package, ...]:
    """The wanted packages and all they depend on, as Debian serves them now, by name."""
    if shutil.which("apt-get") is None or not _KEYRING.exists():
        raise ImageError(
            f"Resolving Debian's packages takes apt-get and {_KEYRING}, which the package debian-archive-keyring holds."
            " Run this on Debian or Ubuntu, or in a container of either. Building the image needs neither."
        )
    with tempfile.TemporaryDirectory() as folder:
        apt = _apt(Path(folder), architecture)
        _run([*apt, "update", "-qq"])
        return _packages(_run([*apt, "install", "--print-uris", "-qq", *wanted]))


def _packages(answer: str) -> tuple[Package, ...]:
    found = [_package(match) for match in map(_LINE.match, answer.splitlines()) if match]
    return tuple(sorted(found, key=lambda package: package.name))


def _package(match: re.Match[str]) -> Package:
    name, version, _ = match["file"].removesuffix(".deb").split("_")
    return Package(
        name=name,
        version=urllib.parse.unquote(version),  # an epoch's colon is written as %3a
        sha256=match["sha256"],
        path=urllib.parse.unquote(match["url"].removeprefix(mirror())).lstrip("/"),
    )


def _apt(folder: Path, architecture: str) -> list[str]:
    """An apt that knows nothing of this machine's packages, sources and preferences."""
    for needed in ("etc/preferences.d", "lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    (folder / "sources.list").write_text("".join(_sources()))
    (folder / "status").write_text(_pretended(architecture))
    options = {
        "Dir::Etc": folder / "etc",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": os.devnull,
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Languages": "none",
        "pkgCacheGen::ForceEssential": ",",
    }
    return ["apt-get", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]


def _sources() -> Iterator[str]:
    for archive, suite in (
        ("debian", SUITE),
        ("debian", f"{SUITE}-updates"),
        ("debian-security", f"{SUITE}-security"),
    ):
        yield f"deb [signed-by={_KEYRING}] {mirror()}/{archive} {suite} main\n"


def _pretended(architecture: str) -> str:
    provided = ", ".join(f"{name} (= 999)" for name in _SCRIPTS_ONLY)
    return (
        "Package: installation-scripts-are-not-run\nStatus: install ok installed\nVersion: 999\n"
        f"Architecture: {architecture}\nMulti-Arch: foreign\nMaintainer: none\nDescription: none\n"
        f"Provides: {provided}\n"
    )


def _run(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode:
        raise ImageError(f"`{shlex.join(command[-6:])}` failed: {ran.stderr.strip()}")
    return ran.stdout
