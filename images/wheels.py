"""The upper layers: the wheels that `uv.lock` names, for the image's Python and processor, and our own package."""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.parse
import zipfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from images.errors import ImageError
from images.licences import stated

PYTHON = "3.13"
"""What the locked Debian has."""
PLACE = Path(f"usr/local/lib/python{PYTHON}/dist-packages")
"""Where Debian's Python looks for what Debian did not install."""
PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
_EXPORT = ("--quiet", "--locked", "--no-dev", "--no-emit-project", "--no-header", "--no-annotate")
_TIMEOUT = 600
_PROJECT = Path(__file__).parents[1]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A Python package in the image."""

    name: str
    version: str
    licence: str | None
    """An SPDX expression, if the package states one."""
    sha256: str
    """Of the wheel it came from."""
    url: str | None
    """Where the wheel can be had."""


def install_wheels(architecture: str, root: Path, scratch: Path) -> list[Distribution]:
    """Install the locked wheels below `root`, for the image's Python."""
    return install_locked(root / PLACE, scratch, python=PYTHON, platform=PLATFORMS[architecture])


def install_locked(place: Path, scratch: Path, *, python: str, platform: str) -> list[Distribution]:
    """Install the locked wheels for a Python and a platform of uv's, each with the hash in the lock or not at all."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(uv("export", *_EXPORT))
    kind = ["--python-version", python, "--python-platform", platform, "--target", str(place)]
    pinned = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirements", str(wanted)]
    uv("pip", "install", "--quiet", "--link-mode", "copy", *kind, *pinned)
    (place / ".lock").unlink(missing_ok=True)
    _remove_commands(place)
    return _installed(place)


def locked_names() -> list[str]:
    """The packages that our own needs, directly or not, on any platform."""
    return re.findall(r"^([a-z0-9-]+)==", uv("export", *_EXPORT, "--no-hashes"), re.MULTILINE)


def install_product(root: Path, scratch: Path) -> Distribution:
    """Build our package as a wheel, and install that below `root`."""
    wheel = build_wheel(scratch)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(root / PLACE)
    [found] = importlib.metadata.distributions(path=[str(root / PLACE)])
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return _described(found, checksum, None)


def build_wheel(folder: Path) -> Path:
    """Build our package as a wheel. The same sources give the same bytes: uv writes no times into it."""
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder))
    [wheel] = folder.glob("*.whl")
    return wheel


def uv(*arguments: str) -> str:
    """What uv says."""
    program = os.environ.get("UV") or shutil.which("uv")
    if program is None:
        raise ImageError("uv is not there. Use `make image`, which brings it.")
    environ = {**os.environ, "UV_PYTHON": sys.executable}  # or uv would look for the newest, and perhaps fetch it
    ran = subprocess.run(
        [program, *arguments], cwd=_PROJECT, env=environ, capture_output=True, text=True, check=False, timeout=_TIMEOUT
    )
    if ran.returncode:
        raise ImageError(f"`uv {arguments[0]}` failed: {ran.stderr.strip()}")
    return ran.stdout


def _remove_commands(place: Path) -> None:
    """Wheels' command lines begin with the path of this machine's Python; none is called in the image."""
    shutil.rmtree(place / "bin", ignore_errors=True)
    for record in place.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("bin/")))


def _installed(place: Path) -> list[Distribution]:
    locked = {package["name"]: package for package in tomllib.loads((_PROJECT / "uv.lock").read_text())["package"]}
    found = sorted(importlib.metadata.distributions(path=[str(place)]), key=lambda each: normalised(each.name))
    return [_described(each, *_origin(each, locked[normalised(each.name)])) for each in found]


def _origin(found: importlib.metadata.Distribution, locked: dict[str, Any]) -> tuple[str, str]:
    """Checksum and address of the wheel that was installed: the one in the lock with the same tags."""
    tags = set(re.findall(r"^Tag: (\S+)", found.read_text("WHEEL") or "", re.MULTILINE))
    matching = [wheel for wheel in locked["wheels"] if tags & set(wheel_tags(wheel["url"]))]
    if len(matching) != 1:
        raise ImageError(f"{len(matching)} wheels of {found.name} in uv.lock have the tags {', '.join(sorted(tags))}.")
    return matching[0]["hash"].removeprefix("sha256:"), matching[0]["url"]


def wheel_tags(url: str) -> Iterator[str]:
    """What a wheel's name says it is for; one name may stand for many tags."""
    stem = urllib.parse.unquote(url).rpartition("/")[2].removesuffix(".whl")
    for parts in product(*(part.split(".") for part in stem.split("-")[-3:])):
        yield "-".join(parts)


def _described(found: importlib.metadata.Distribution, sha256: str, url: str | None) -> Distribution:
    name, licence = normalised(found.name), stated(found.metadata)
    return Distribution(name=name, version=found.version, licence=licence, sha256=sha256, url=url)


def normalised(name: str) -> str:
    """A project's name as package indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()
