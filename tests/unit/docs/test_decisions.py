"""The page on the architecture lists every decision, in order and by its title."""

import re

from unit.docs.test_links import ROOT

_TITLE = re.compile(r"# \d+\. (.*)")


def test_every_decision_is_listed() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    listed = re.findall(r"^- \[.*\]\(adr/.*\)$", page, re.MULTILINE)
    files = sorted((ROOT / "docs/adr").glob("*.md"))
    titles = (_TITLE.match(file.read_text()) for file in files)
    wanted = [f"- [{title[1]}](adr/{file.name})" for file, title in zip(files, titles, strict=True) if title]
    assert len(wanted) == len(files), "a decision has a title with its number"
    assert listed == wanted
