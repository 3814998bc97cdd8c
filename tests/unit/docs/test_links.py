"""Every link between our pages leads somewhere, to the very section that it names."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<section>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@cache
def text(page: Path) -> str:
    """A page without what it shows of terminals and files."""
    return _CODE.sub("", page.read_text())


def sections(page: Path) -> set[str]:
    """The names under which a page's headings can be reached, as GitHub makes them."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text(page)))
    return {word.strip().replace(" ", "-") for word in words}


def dead_links(page: Path) -> Iterator[str]:
    for link in _LINK.finditer(text(page)):
        target = (page.parent / link["file"]).resolve() if link["file"] else page
        if not target.exists() or (link["section"] and link["section"] not in sections(target)):
            yield link[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_heading_names_one_section_of_its_page(page: Path) -> None:
    headings = re.findall(r"^##+ .*$", text(page), re.MULTILINE)
    assert [heading for heading in set(headings) if headings.count(heading) > 1] == []
