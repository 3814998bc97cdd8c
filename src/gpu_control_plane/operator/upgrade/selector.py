"""Label selectors as people type them, such as `app=train,tier in (a,b),!keep`. Pure."""

import re
from typing import Final

from gpu_control_plane.api.selectors import LabelSelector, Operator, Requirement

_KEY: Final = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE: Final = r"(?P<value>[-A-Za-z0-9_.]*)"
_FORMS: Final = (
    (re.compile(rf"{_KEY}\s*(?:==|=)\s*{_VALUE}"), Operator.IN),
    (re.compile(rf"{_KEY}\s*!=\s*{_VALUE}"), Operator.NOT_IN),
    (re.compile(rf"{_KEY}\s+in\s*\((?P<value>[^()]*)\)"), Operator.IN),
    (re.compile(rf"{_KEY}\s+notin\s*\((?P<value>[^()]*)\)"), Operator.NOT_IN),
    (re.compile(rf"!\s*{_KEY}"), Operator.DOES_NOT_EXIST),
    (re.compile(_KEY), Operator.EXISTS),
)


class BadSelector(ValueError):
    """A selector that cannot be parsed; the message names the part."""


def parse(text: str) -> LabelSelector:
    """The selector; an empty text selects everything."""
    parts = re.split(r",(?![^()]*\))", text)
    return LabelSelector(match_expressions=tuple(_requirement(part.strip()) for part in parts if text.strip()))


def _requirement(part: str) -> Requirement:
    for form, operator in _FORMS:
        if found := form.fullmatch(part):
            named = found.groupdict()
            values = tuple(value.strip() for value in named["value"].split(",")) if "value" in named else ()
            return Requirement(key=named["key"], operator=operator, values=values)
    raise BadSelector(f'"{part}" is no comparison of labels; write for example app=train or tier in (a,b)')
