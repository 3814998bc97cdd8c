"""Licences as SPDX expressions, as far as packages state them for machines.

What Debian has a word for and SPDX has not becomes a reference of our own, to be looked up in the image.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata
from pathlib import Path

REFERENCE = "LicenseRef-Debian-"
_FORMAT = re.compile(r"\AFormat(-Specification)?:.*copyright-format", re.IGNORECASE)
_FIELD = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
_GNU = re.compile(r"(?P<name>GPL|LGPL|AGPL|GFDL)-(?P<version>\d(?:\.\d)?)(?P<later>\+?)")
_SAME_NAME = ("0BSD", "Apache-2.0", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MPL-1.1", "MPL-2.0", "Unicode-3.0", "Zlib")
_NAMES = {
    **{name.lower(): name for name in _SAME_NAME},
    "artistic": "Artistic-1.0-Perl",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "expat": "MIT",
    "sleepycat": "Sleepycat",
}
_STATED = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "mit": "MIT",
    "mit license": "MIT",
    "psf-2.0": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
"""Licence classifiers of Python packages from before SPDX expressions, and the expressions they mean."""


def stated(metadata: PackageMetadata) -> str | None:
    """What a Python package says its licence is, where that has one meaning."""
    if expression := metadata.get("License-Expression"):
        return expression
    classified = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License ::" in each]
    candidates = (_STATED.get(text.lower()) for text in (metadata.get("License") or "", *classified))
    return next((found for found in candidates if found), None)


def copyright_file(root: Path, package: str) -> Path:
    """Where a package's copyright file is; the folder may be a link to another package's."""
    return root / "usr/share/doc" / package / "copyright"


def declared(copyright_text: str) -> str | None:
    """The licences of all parts of a package, or None for a text that only people can read."""
    if not _FORMAT.match(copyright_text):
        return None
    paragraphs = (each for each in re.split(r"\n\s*\n", copyright_text) if re.search(r"^Files:", each, re.MULTILINE))
    atoms = {atom for paragraph in paragraphs for atom in _atoms(paragraph)}
    return " AND ".join(sorted(atoms)) or None


def _atoms(paragraph: str) -> Iterator[str]:
    for stated in _FIELD.findall(paragraph):
        for part in re.split(r",?\s+and\s+|\s*,\s*", stated.strip()):
            choices = [_spdx(choice) for choice in re.split(r"\s+or\s+|\s*\|\s*", part) if choice]
            yield choices[0] if len(choices) == 1 else f"({' OR '.join(sorted(set(choices)))})"


def _spdx(name: str) -> str:
    if known := _NAMES.get(name.lower()):
        return known
    if match := _GNU.fullmatch(name):
        version = match["version"] if "." in match["version"] else f"{match['version']}.0"
        return f"{match['name']}-{version}-{'or-later' if match['later'] else 'only'}"
    return REFERENCE + re.sub(r"[^A-Za-z0-9.]+", "-", name.replace("+", "-or-later")).strip("-")
