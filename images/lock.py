"""The record of which Debian packages are in the image: exact versions with their checksums, one file an architecture.

It is committed. A build takes these packages or fails; only `make image-lock` changes them.
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from images.errors import ImageError

SUITE = "trixie"
ARCHITECTURES = ("amd64", "arm64")
_FOLDER = Path(__file__).parent


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One Debian package file."""

    name: str
    version: str
    sha256: str
    path: str
    """Below a mirror's root, so beginning with the archive: `debian/pool/…` or `debian-security/pool/…`."""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """All Debian packages of the image for one architecture."""

    suite: str
    architecture: str
    resolved: datetime
    """When Debian served exactly these: the image's date, and where the archive's history is asked if need be."""
    packages: tuple[Package, ...]

    def renewed(self, packages: tuple[Package, ...], now: datetime) -> "Lock":
        """With these packages instead. The same packages make the same lock, whatever the time."""
        if packages == self.packages:
            return self
        return msgspec.structs.replace(self, packages=packages, resolved=now.astimezone(UTC).replace(microsecond=0))


def lock_file(architecture: str) -> Path:
    return _FOLDER / f"debian-{architecture}.lock.json"


def read_lock(architecture: str, file: Path | None = None) -> Lock:
    """The recorded packages for an architecture."""
    file = file or lock_file(architecture)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Lock)
    except FileNotFoundError:
        raise ImageError(
            f"{file.name} does not exist: Debian's packages were not recorded for {architecture}. Images are made for"
            f" {' and '.join(ARCHITECTURES)}; `make image-lock` records the packages for these."
        ) from None
    except msgspec.DecodeError as error:
        raise ImageError(f"{file.name} cannot be read: {error}. `make image-lock` writes it anew.") from None


def write_lock(lock: Lock, file: Path | None = None) -> None:
    """One line a field, so that a change of versions reads well as a diff."""
    text = msgspec.json.format(msgspec.json.encode(lock), indent=1)
    (file or lock_file(lock.architecture)).write_bytes(text + b"\n")
