"""Texts for people are in one place: every language has all of them, and templates have none of their own."""

import re
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path

import pytest

from gpu_control_plane.console.rendering import FOLDER
from gpu_control_plane.console.texts import LANGUAGES, plural_form, texts_in
from gpu_control_plane.pools.explain.explanation import Cause
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.fleet_map import Cell
from gpu_control_plane.views.overview import TodoKind

_TEMPLATES = sorted(FOLDER.glob("*.html"))
_PROPER_NAMES = {"NVLink", "NUMA", "CUDA", "MIG", "GPU", "kubectl create token", "Tab", "Space", "Enter", "°C"}
"""The same in every language."""
_SPOKEN = ("title", "aria-label", "placeholder", "alt", "data-copied", "data-none")
"""Attributes that people see or hear."""


def test_languages_have_the_same_keys() -> None:
    english = texts_in("en").entries
    for language in LANGUAGES:
        assert texts_in(language).entries.keys() == english.keys(), language


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_take_the_same_values_in_every_language(language: str) -> None:
    for key, entry in texts_in("en").entries.items():
        assert _values(texts_in(language).entries[key]) == _values(entry), key


def _values(entry: object) -> set[str]:
    """The names in braces; `count` may be left out of a form for one."""
    forms = [entry] if isinstance(entry, str) else list(entry.values()) if isinstance(entry, dict) else []
    return set(chain.from_iterable(re.findall(r"{(\w+)}", form) for form in forms))


@pytest.mark.parametrize("language", LANGUAGES)
def test_numbers_have_all_their_forms(language: str) -> None:
    forms = {plural_form(language, number) for number in range(200)}
    for key, entry in texts_in(language).entries.items():
        if not isinstance(entry, str):
            assert entry.keys() == forms, key


def test_russian_counts_as_people_do() -> None:
    texts = texts_in("ru")
    assert [texts("counted.cards", count=number) for number in (1, 3, 5, 11, 21, 112)] == [
        "1 карта",
        "3 карты",
        "5 карт",
        "11 карт",
        "21 карта",
        "112 карт",
    ]
    assert texts.number(40000) == "40\u202f000"


def test_every_word_that_a_page_asks_for_is_there() -> None:
    texts = texts_in("en")
    for template in _TEMPLATES:
        for key in re.findall(r"""\bt\(["']([\w.-]+)["'][,)]""", template.read_text()):
            assert key in texts.entries, f"{template.name}: {key}"
    for kind in TodoKind:
        assert f"todo.{kind}" in texts.entries
    for reason in PendingReason:
        assert f"reason.{reason}" in texts.entries
    for cause in Cause:
        assert f"cause.{cause}" in texts.entries
    for measured in ("busy", "memory", "temperature", "power"):
        assert {f"plot.{measured}", f"unit.{measured}"} <= texts.entries.keys()
    for cell in Cell:
        assert {f"cell.{cell.word}", f"cell_short.{cell.word}"} <= texts.entries.keys()


class _BareText(HTMLParser):
    """What a template shows without asking for a text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self._note(data)

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _SPOKEN:
                self._note(value or "")

    def _note(self, text: str) -> None:
        for line in text.splitlines():
            if re.search(r"[^\W\d_]", line) and line.strip() not in _PROPER_NAMES:
                self.found.append(line.strip())


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda template: template.name)
def test_templates_have_no_text_of_their_own(template: Path) -> None:
    markup = re.sub(r"{#.*?#}", "", template.read_text(), flags=re.DOTALL)
    markup = re.sub(r"{%.*?%}|{{.*?}}", "", markup, flags=re.DOTALL)
    parser = _BareText()
    parser.feed(markup)
    assert [text for text in parser.found if text.strip(", ·") not in _PROPER_NAMES] == []


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda template: template.name)
def test_templates_have_no_inline_code(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\sstyle=|\son\w+=|hx-on|<style|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
