"""CHANGELOG.md: kept by hand, since what matters to users is not what matters in commits. A section a release."""

import re
from datetime import date
from typing import Final

from release.source import ReleaseError

UNRELEASED: Final = "Unreleased"
_HEADING: Final = re.compile(r"^## (?P<title>\S+)(?: - (?P<day>\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def notes_of(changelog: str, version: str) -> str:
    """What the changelog says about a version; about what is unreleased if the version has no section yet."""
    found = sections(changelog)
    notes = found.get(version) or found.get(UNRELEASED, "")
    if not notes:
        raise ReleaseError(f"CHANGELOG.md says nothing about {version}: write it under «## {UNRELEASED}».")
    return notes


def sections(changelog: str) -> dict[str, str]:
    """The text of each section, by its title."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    return {
        heading["title"]: changelog[heading.end() : end].strip() for heading, end in zip(headings, ends, strict=True)
    }


def cut(changelog: str, version: str, day: date) -> str:
    """The changelog with what was unreleased under a version, and room for what comes next."""
    if not sections(changelog).get(UNRELEASED):
        raise ReleaseError(f"CHANGELOG.md has nothing under «## {UNRELEASED}»: a release that changes nothing?")
    return changelog.replace(f"## {UNRELEASED}\n", f"## {UNRELEASED}\n\n## {version} - {day}\n", 1)
