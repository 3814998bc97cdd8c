"""Why a rendering was refused: in GitOps nobody reads warnings, so what has no effect must not get into git."""

from collections.abc import Iterable

import msgspec


class RefusedKey(msgspec.Struct, frozen=True, order=True):
    """A key of a values file that would have no effect, or not the wanted one."""

    file: str
    key: str
    why: str


class UnsupportedKeys(ValueError):
    """Some keys cannot be carried out. The message names each of them."""

    def __init__(self, keys: Iterable[RefusedKey]) -> None:
        self.keys = tuple(sorted(keys))
        lines = [f"  {each.file}: {each.key}: {each.why}" for each in self.keys]
        super().__init__("These keys are not supported:\n" + "\n".join(lines))
