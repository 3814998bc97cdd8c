"""Nodes whose turn has begun before the cache shows it: they count, else a turn would be given twice."""

from collections.abc import Callable, Iterable

from gpu_control_plane.kube.objects import Object


class Begun:
    """By node, the resourceVersion of the write that began its turn, until the cache has come that far.

    A process that has just taken over, or whose last write failed without an answer, does not know it: the API server
    does.
    """

    def __init__(self) -> None:
        self._versions: dict[str, str] | None = None

    @property
    def known(self) -> bool:
        return self._versions is not None

    def learn(self, under_way: Iterable[Object]) -> None:
        """What the API server says of the nodes under way."""
        self._versions = {node.name: node.metadata.resource_version for node in under_way}

    def doubt(self) -> None:
        """A write is on its way, and may land without our hearing of it."""
        self._versions = None

    def unseen(self, cached: Callable[[str], Object | None]) -> dict[str, str]:
        """Those that the cache does not show yet, with their versions; the others are forgotten."""
        held = self._versions or {}
        self._versions = {name: version for name, version in held.items() if not _arrived(cached(name), version)}
        return dict(self._versions)

    def restore(self, unseen: dict[str, str], written: Object) -> None:
        """The write landed."""
        self._versions = {**unseen, written.name: written.metadata.resource_version}


def _arrived(node: Object | None, version: str) -> bool:
    """Whether the cache has come as far as this version; resourceVersions are numbers. A node may be gone since."""
    if node is None:
        return True
    held = node.metadata.resource_version
    return held == version or (held.isdecimal() and version.isdecimal() and int(held) >= int(version))
