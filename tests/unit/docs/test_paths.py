"""Files and names that pages about the code mention are there: a page that leads nowhere costs a reader an hour."""

import re
from pathlib import Path

import pytest

from unit.docs.test_links import ROOT, text

SOURCES = ROOT / "src/gpu_control_plane"
LIFE = text(ROOT / "docs/life-of-a-card.md")
CONTRIBUTING = text(ROOT / "CONTRIBUTING.md")
_ROW = re.compile(r"^\| (?P<first>.+?) \| (?P<rest>.+?) \|$", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
_CALLED = re.compile(r"[A-Za-z_.]+(?=\(|$)")
_DEFINED = re.compile(r"^ *(?:async )?(?:class|def) (\w+)", re.MULTILINE)


def paths(page: str) -> list[str]:
    """What looks like a file or a folder in some text."""
    return [word for word in _QUOTED.findall(page) if "/" in word and _PATH.fullmatch(word)]


def find(path: str) -> Path | None:
    bases = (SOURCES, ROOT, ROOT / "tests", SOURCES / "agent")
    return next((base / path for base in bases if (base / path).exists()), None)


def definitions(*files: Path) -> set[str]:
    return {name for file in files for name in _DEFINED.findall(file.read_text())}


@pytest.mark.parametrize("path", sorted({*paths(LIFE), *paths(CONTRIBUTING)}))
def test_pages_name_files_that_exist(path: str) -> None:
    assert find(path) is not None


def test_what_a_file_is_said_to_do_is_in_that_file() -> None:
    known = definitions(*SOURCES.rglob("*.py"))
    checked = 0
    for row in (row for row in _ROW.finditer(LIFE) if paths(row["first"])):
        files = [file for path in paths(row["first"]) if (file := find(path)) is not None and file.suffix == ".py"]
        calls = [match[0].split(".")[-1] for word in _QUOTED.findall(row["rest"]) if (match := _CALLED.match(word))]
        named = [call for call in calls if call in known]
        sources = "".join(file.read_text() for file in files)
        assert [name for name in named if not re.search(rf"\b{name}\b", sources)] == [], row["first"]
        checked += len(named)
    assert checked >= 15


def test_contributing_names_every_folder() -> None:
    folders = {f"{folder.name}/" for folder in ROOT.iterdir() if _is_kept(folder)}
    packages = {f"src/gpu_control_plane/{file.parent.name}/" for file in SOURCES.glob("*/__init__.py")}
    assert (folders | packages) - {*paths(CONTRIBUTING), "src/"} == set()


def _is_kept(folder: Path) -> bool:
    """Whether it is a folder of the repository, and not what builds and tests have left."""
    if not folder.is_dir() or folder.name.startswith(".") or folder.name in ("build", "dist"):
        return False
    return any(file.suffix in (".py", ".md", ".yaml") for file in folder.rglob("*"))


def test_contributing_says_where_to_change_what() -> None:
    table = CONTRIBUTING.split("| To change … | open |")[1].split("\n## ")[0]
    assert len(_ROW.findall(table)) >= 15
