"""Every text that the console shows to people, in each language: `en.toml`, `ru.toml`.

Sentences that controllers and plans write are shown as they are, in English: they are the same in Events and commands.
"""

import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request

ENGLISH: Final = "en"
LANGUAGES: Final = (ENGLISH, "ru")
THEMES: Final = ("auto", "light", "dark")
LANGUAGE_COOKIE: Final = "gpu-language"
THEME_COOKIE: Final = "gpu-theme"

type Entry = str | Mapping[str, str]
"""A text, or its forms by number: one, few, many, other."""

_FOLDER: Final = Path(__file__).parent
_NARROW_SPACE: Final = "\u202f"
_SPANS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
_TEENS: Final = range(11, 15)
_FEW: Final = range(2, 5)


class Texts:
    """The texts of one language. Templates call it: `t("approvals.title")`."""

    def __init__(self, language: str, entries: Mapping[str, Entry]) -> None:
        self.language = language
        self.entries = entries

    def __call__(self, key: str, **values: object) -> str:
        """The text of this key; `KeyError` if there is none. A `count` among the values chooses the form."""
        entry = self.entries[key]
        if not isinstance(entry, str):
            count = values.get("count")
            entry = entry[plural_form(self.language, count if isinstance(count, int) else 0)]
        if not values:
            return entry
        return entry.format_map({name: self._shown(value) for name, value in values.items()})

    def word(self, kind: str, value: object) -> str:
        """A word of the API, such as a state, in this language; itself where nobody has translated it."""
        entry = self.entries.get(f"{kind}.{value}")
        return entry if isinstance(entry, str) else str(value)

    def sentence(self, text: str) -> str:
        """A sentence of a controller as it stands by itself: with a capital, unless it begins with a name."""
        first = text.split(" ", 1)[0]
        return text[:1].upper() + text[1:] if first.isalpha() else text

    def number(self, value: float) -> str:
        """With thousands set apart."""
        grouped = f"{value:,}"
        return grouped if self.language == ENGLISH else grouped.replace(",", _NARROW_SPACE).replace(".", ",")

    def span(self, seconds: float) -> str:
        """A span of time in its largest unit: 3 h."""
        whole = max(0, int(seconds))
        size, unit = next(((size, unit) for size, unit in _SPANS if whole >= size), (1, "seconds"))
        return self(f"time.{unit}", count=whole // size)

    def age(self, moment: datetime) -> str:
        """How long ago it was."""
        return self.span((datetime.now(UTC) - moment).total_seconds())

    def moment(self, moment: datetime) -> str:
        """A time as people write it, in UTC."""
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def _shown(self, value: object) -> str:
        return self.number(value) if isinstance(value, int | float) else str(value)


def plural_form(language: str, count: int) -> str:
    """Which form of a text goes with this number."""
    if language == ENGLISH:
        return "one" if count == 1 else "other"
    last = count % 10
    if count % 100 in _TEENS:
        return "many"
    return "one" if last == 1 else "few" if last in _FEW else "many"


@cache
def texts_in(language: str) -> Texts:
    return Texts(language, dict(_flat(tomllib.loads((_FOLDER / f"{language}.toml").read_text()))))


def texts_for(request: Request) -> Texts:
    return texts_in(language_of(request))


def language_of(request: Request) -> str:
    """What this person has chosen, else the first language of their browser that we have."""
    chosen = request.cookies.get(LANGUAGE_COOKIE)
    if chosen in LANGUAGES:
        return chosen
    for part in request.headers.get("accept-language", "").split(","):
        language = part.partition(";")[0].strip().lower()[:2]
        if language in LANGUAGES:
            return language
    return ENGLISH


def theme_of(request: Request) -> str:
    """What this person has chosen, else `auto`: as their system is."""
    chosen = request.cookies.get(THEME_COOKIE)
    return chosen if chosen in THEMES else THEMES[0]


_FORMS: Final = frozenset({"one", "few", "many", "other"})


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Entry]]:
    for name, value in table.items():
        if isinstance(value, str):
            yield prefix + name, value
        elif isinstance(value, dict):
            if value.keys() <= _FORMS:
                yield prefix + name, value
            else:
                yield from _flat(value, f"{prefix}{name}.")
