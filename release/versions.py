"""The version, which pyproject.toml decides, and the other files that repeat it because their readers need it there."""

import re
import tomllib
from collections.abc import Mapping
from typing import Final

from release.source import PROJECT, ReleaseError

PLACES: Final[Mapping[str, str]] = {
    "pyproject.toml": r'(?m)^version = "(.+)"$',
    "uv.lock": r'(?m)^name = "gpu-control-plane"\nversion = "(.+)"$',
    "src/gpu_control_plane/__init__.py": r'(?m)^__version__ = "(.+)"$',
    "charts/gpu-control-plane/Chart.yaml": r"(?m)^(?:version|appVersion): (.+)$",
}
"""Files with the version, and how each writes it. `make generate` brings it to the CRDs."""
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+")


def current_version() -> str:
    return str(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"])


def written_versions() -> dict[str, set[str]]:
    """What each file says."""
    return {place: set(re.findall(pattern, (PROJECT / place).read_text())) for place, pattern in PLACES.items()}


def set_version(text: str, pattern: str, version: str) -> str:
    """The text of a file with another version in it."""
    return re.sub(pattern, lambda found: found[0].replace(found[1], version), text)


def check_version(version: str) -> str:
    """The version, if Python and Helm both take it: they write candidates in different ways, so there are none."""
    if not _RELEASE.fullmatch(version):
        raise ReleaseError(f"«{version}» is no version: write three numbers, as in 1.2.3.")
    return version
