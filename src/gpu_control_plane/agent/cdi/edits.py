"""CDI's container edits: what is changed about a container so that it can use a card.

Both the CDI spec and, on nodes whose runtime does not know CDI, the answer to Allocate are made from these.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

READ_WRITE: Final = "rw"
"""Without `m`: containers may use a device file, but not make others with mknod."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Fields with defaults are left out: a runtime refuses a spec with fields that its version does not know."""


class DeviceNode(_Wire, frozen=True, kw_only=True):
    """A device file. Its numbers are written down, since the runtime may be unable to look them up."""

    path: str
    host_path: str = ""
    """Only where it differs."""
    type: str
    major: int
    minor: int
    file_mode: int | None = None
    permissions: str = ""
    gid: int | None = None
    """The group that may use it; None when every user may."""


class Mount(_Wire, frozen=True, kw_only=True):
    """A file of the host that the container sees."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(_Wire, frozen=True, kw_only=True):
    """A program of the host that the runtime runs while it creates the container."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()


class Edits(_Wire, frozen=True, kw_only=True):
    """Everything that is changed about a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()


def device_node_edits(nodes: Sequence[DeviceNode]) -> Edits:
    """The edits that bring device files into a container, together with the right to open them."""
    gids = sorted({node.gid for node in nodes if node.gid is not None})
    return Edits(device_nodes=tuple(nodes), additional_gids=tuple(gids))


def merged(parts: Iterable[Edits]) -> Edits:
    """All of them, each item once: two MIG instances of one card share the card's own device file."""
    every = tuple(parts)
    return Edits(
        env=tuple(dict.fromkeys(entry for part in every for entry in part.env)),
        device_nodes=tuple({node.path: node for part in every for node in part.device_nodes}.values()),
        hooks=tuple(dict.fromkeys(hook for part in every for hook in part.hooks)),
        mounts=tuple({mount.container_path: mount for part in every for mount in part.mounts}.values()),
        additional_gids=tuple(sorted({gid for part in every for gid in part.additional_gids})),
    )
