"""Which settings of a module are secrets. Their schemas are Deckhouse's own and not known here, so names decide."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAMED: Final = re.compile(
    r"(passw(or)?d|passphrase|pw|secret|token|licen[cs]e|credentials?|docker_?cfg"
    r"|(private|secret|access|api|user|auth|ssh|encryption)[-_]?key)$",
    re.IGNORECASE,
)
_WRITTEN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----|://[^/@\s:]+:[^/@\s]+@")
"""A private key, or an address with a password in it."""


def secret_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The path and the value of each setting that is a secret."""
    yield from _inside(settings, "")


def _inside(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            here = f"{path}.{name}" if path else str(name)
            if _NAMED.search(str(name)) and isinstance(each, str | int) and not isinstance(each, bool):
                yield here, each
            else:
                yield from _inside(each, here)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _inside(each, f"{path}[{number}]")
    elif isinstance(value, str) and _WRITTEN.search(value):
        yield path, value
