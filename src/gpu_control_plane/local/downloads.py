"""Fetching a published file and verifying its checksum: the recorded one, or where none is recorded, the published one.

What goes wrong while fetching (no network, no such file, a broken connection) is `DownloadFailed`, and another source
may be tried. A wrong checksum is not: that needs a person.
"""

import hashlib
import http.client
import shutil
import socket
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import IO

import msgspec

from gpu_control_plane.local.errors import ChecksumMismatch, DownloadFailed
from gpu_control_plane.local.progress import Step, megabytes
from gpu_control_plane.local.releases import Artefact, Checksum
from gpu_control_plane.local.store import Store

_TIMEOUT = 10.0
_CHUNK = 1 << 18
_LARGEST_DESCRIPTION = 4 << 20


class HostUnreachable(DownloadFailed):
    """The host does not answer, so the next file from it need not be tried."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host} cannot be reached ({why}).")
        self.host = host


class _Asset(msgspec.Struct):
    name: str
    digest: str | None = None


class _GitHubRelease(msgspec.Struct):
    assets: list[_Asset] = []


def download(artefact: Artefact, into: Path, store: Store, step: Step, recorded: str | None = None) -> dict[str, Path]:
    """Fetch, verify and unpack; the result is the programs themselves, inside `into`. `recorded` is the checksum that
    the repository has of the file, if it has one."""
    expected = recorded or published_checksum(artefact)
    file = into / artefact.file
    actual = _fetch(artefact.url, file, store, step)
    if actual != expected:
        file.unlink()
        raise ChecksumMismatch(
            f"{artefact.url} was refused: its SHA-256 is {actual}, but"
            f" {'this repository' if recorded else artefact.checksum_url} says {expected}."
            " The file was removed. Try again; if it stays so, a proxy or mirror on the way changes files,"
            " and you should not trust it."
        )
    with store.room_for(artefact.file, 0):
        return {
            program: _extract(file, member, into) if member else file for program, member in artefact.programs.items()
        }


def _fetch(url: str, file: Path, store: Store, step: Step) -> str:
    digest = hashlib.sha256()
    with _open(url) as response:
        size = int(response.headers.get("Content-Length") or 0)
        received = 0
        with store.room_for(url.rpartition("/")[2], size), file.open("wb") as out:
            while chunk := _read(url, response):
                digest.update(chunk)
                out.write(chunk)
                received += len(chunk)
                step.detail(f"{megabytes(received)} of {megabytes(size)}" if size else megabytes(received))
    if received < size:
        raise DownloadFailed(f"{url} ended after {received} of {size} bytes.")
    return digest.hexdigest()


def published_checksum(artefact: Artefact) -> str:
    """The checksum that its publisher gives."""
    url = artefact.checksum_url
    with _open(url) as response:
        text = response.read(_LARGEST_DESCRIPTION).decode(errors="replace")
    found: str | None = None
    match artefact.checksum:
        case Checksum.BARE:
            found = next(iter(text.split()), None)
        case Checksum.SUMS:
            lines = (line.split() for line in text.splitlines())
            sums = {name.lstrip("*"): value for value, name in (line for line in lines if len(line) == 2)}  # noqa: PLR2004
            found = sums.get(artefact.file)
        case Checksum.GITHUB:
            found = _github_digest(text, artefact.file)
    if found is None or len(found) != hashlib.sha256().digest_size * 2:
        raise DownloadFailed(f"{url} has no SHA-256 for {artefact.file}.")
    return found.lower()


def _github_digest(text: str, file: str) -> str | None:
    try:
        release = msgspec.json.decode(text, type=_GitHubRelease)
    except msgspec.DecodeError:
        return None
    digests = {asset.name: asset.digest for asset in release.assets if asset.digest}
    return digests.get(file, "").removeprefix("sha256:")


def _open(url: str) -> http.client.HTTPResponse:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadFailed(f"{url} is not an http or https address.")
    request = urllib.request.Request(url, headers={"User-Agent": "gpu-control-plane"})  # noqa: S310
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadFailed(f"{url} answered {error.code} {error.reason}.") from None
    except urllib.error.URLError as error:
        raise HostUnreachable(urllib.parse.urlsplit(url).netloc, _why(error)) from None
    except (OSError, http.client.HTTPException) as error:
        raise DownloadFailed(f"{url} could not be fetched: {error}.") from None
    return response


def _read(url: str, response: IO[bytes]) -> bytes:
    try:
        return response.read(_CHUNK)
    except http.client.IncompleteRead as error:
        raise DownloadFailed(f"{url} ended too early ({error}).") from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise DownloadFailed(f"{url} broke off: {error}.") from None


def _why(error: urllib.error.URLError) -> str:
    if isinstance(error.reason, socket.gaierror):
        return "its name does not resolve"
    if isinstance(error.reason, OSError):
        return error.reason.strerror or str(error.reason) or "no answer"
    return str(error.reason)


def _extract(archive: Path, member: str, into: Path) -> Path:
    program = into / member.rpartition("/")[2]
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped, zipped.open(member) as inside, program.open("wb") as out:
                shutil.copyfileobj(inside, out)
        else:
            with tarfile.open(archive) as tar, _inside(tar, member) as inside, program.open("wb") as out:
                shutil.copyfileobj(inside, out)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DownloadFailed(f"{archive.name} does not contain {member} ({error}).") from error
    return program


def _inside(tar: tarfile.TarFile, member: str) -> IO[bytes]:
    file = tar.extractfile(member)
    if file is None:
        raise KeyError(f"{member} is not a file")
    return file
