"""Which settings of a module are secrets. Their schemas are Deckhouse's own and not known here, so names decide."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAMED: Final = re.compile(
    r"(passw(or)?d|passphrase|pw|secret|token|licen[cs]e|credential|docker_?cfg"
    r"|(private|secret|access|api|user|auth|ssh|encryption)[-_]?key)s?$",
    re.IGNORECASE,
)
_WRITTEN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----|://[^/@\s:]+:[^/@\s]+@")
"""A private key, or an address with a password in it."""


def secret_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The path and the value of each setting that is a secret."""
    yield from _inside(settings, "", named=False)


def _inside(value: Any, path: str, *, named: bool) -> Iterator[tuple[str, Any]]:
    """Below a name of secrets every text and number is one, however deep."""
    if isinstance(value, Mapping):
        pair = _is_named(value.get("name"))
        for name, each in value.items():
            here = f"{path}.{name}" if path else str(name)
            yield from _inside(each, here, named=named or _is_named(name) or (pair and name == "value"))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _inside(each, f"{path}[{number}]", named=named)
    elif isinstance(value, str):
        if named or _WRITTEN.search(value):
            yield path, value
    elif named and isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _is_named(name: object) -> bool:
    return _NAMED.search(str(name)) is not None
