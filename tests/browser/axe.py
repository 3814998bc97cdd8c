"""axe-core finds what keeps people with disabilities out of a page. It is fetched once, pinned by its checksum and kept
in the cache, beside the programs of the local cluster."""

import hashlib
import io
import os
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

from gpu_control_plane.local.folders import cache_folder

VERSION: Final = "4.14.0"
_SHA256: Final = "2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af"
_REGISTRY: Final = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
_URL: Final = f"{_REGISTRY}/axe-core/-/axe-core-{VERSION}.tgz"
_MEMBER: Final = "package/axe.min.js"


class NoAxe(Exception):
    """It is not in the cache and cannot be fetched."""


def axe_source() -> str:
    """The script, from the cache or the npm registry."""
    file = cache_folder() / f"axe-core-{VERSION}" / "axe.min.js"
    if not file.exists():
        _write(file, _fetched())
    return file.read_text()


async def violations(page: Page, source: str) -> list[str]:
    """What is wrong with the open page, each as a rule and the elements it is about."""
    # A script tag would be against the page's own policy; what a debugger evaluates is not.
    await page.evaluate(source)
    found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {rule['help']}: " + "; ".join(node["html"][:160] for node in rule["nodes"][:3])
        for rule in found["violations"]
    ]


def _fetched() -> bytes:
    try:
        with urllib.request.urlopen(_URL, timeout=30) as answer:  # noqa: S310 - an address of ours
            archive: bytes = answer.read()
    except OSError as error:
        raise NoAxe(f"axe-core {VERSION} is not in the cache, and {_URL} cannot be fetched: {error}.") from error
    found = hashlib.sha256(archive).hexdigest()
    if found != _SHA256:
        raise NoAxe(f"{_URL} was refused: its SHA-256 is {found}, but this repository says {_SHA256}.")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(_MEMBER)
        assert member is not None
        return member.read()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as unfinished:
        unfinished.write(content)
    Path(unfinished.name).replace(file)
