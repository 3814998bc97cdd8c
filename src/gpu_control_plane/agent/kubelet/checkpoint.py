"""The checkpoint of the kubelet's device manager: which pod, by UID, was allocated which devices.

The pod resources API names pods without UID and leaves init containers out; the checkpoint has both, from the moment of
the allocation on. It keeps a pod that has ended until the next allocation, and it may be lost at any time. Its format
is the kubelet's own and has been the same since 1.20; one that is not understood counts as none.
"""

from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpu_control_plane.agent.units import PodDevices

FILE_NAME: Final = "kubelet_internal_checkpoint"

_log = structlog.get_logger(component="agent.kubelet.checkpoint")


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    resource_name: str
    device_ids: dict[str, tuple[str, ...] | None] = msgspec.field(name="DeviceIDs")
    """By NUMA node."""


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: tuple[_Entry, ...] | None = None


class _Checkpoint(msgspec.Struct, rename="pascal"):
    data: _Data


def read_checkpoint(folder: Path) -> tuple[PodDevices, ...] | None:
    """What the checkpoint in the device plugins' folder records; None if there is none, or none that makes sense."""
    try:
        read = msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("the kubelet's checkpoint cannot be read", why=str(error))
        return None
    return tuple(
        PodDevices(entry.pod_uid, entry.resource_name, _ids(entry)) for entry in read.data.pod_device_entries or ()
    )


def _ids(entry: _Entry) -> tuple[str, ...]:
    return tuple(sorted(unit_id for of_numa in entry.device_ids.values() for unit_id in of_numa or ()))
