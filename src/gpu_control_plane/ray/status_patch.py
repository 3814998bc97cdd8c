"""The smallest merge patch from one status to another: what is written of it, and nothing where nothing differs.

A status of Ray has one writer, and its maps lose keys: a patch says so by null, which server-side apply cannot where
KubeRay's operator has owned the field before.
"""

from typing import Any, Final

import msgspec

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.merge_patch import merge_patch
from gpu_control_plane.kube.objects import Object

_TIMES: Final = frozenset({"lastUpdateTime"})
"""Fields that say when a status was written, and so are no reason to write one."""


async def write_status[T: Object](client: Client, held: T, status: msgspec.Struct) -> T:
    """Make the status of an object be `status`, if it differs by more than the time; `Conflict` if the object has
    changed since it was read."""
    patch = merge_patch(_plain(held.status), _plain(status))  # type: ignore[attr-defined]
    if not patch.keys() - _TIMES:
        return held
    return await client.patch(
        type(held),
        held.name,
        {"status": patch},
        resource_version=held.metadata.resource_version,
        namespace=held.metadata.namespace,
        subresource="status",
    )


def differs(held: msgspec.Struct, desired: msgspec.Struct) -> bool:
    """Whether a status is to be written: it differs by more than the time."""
    return bool(merge_patch(_plain(held), _plain(desired)).keys() - _TIMES)


def _plain(status: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return plain
