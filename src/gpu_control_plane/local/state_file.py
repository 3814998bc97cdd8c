"""The state file of a cluster, which the supervisor writes for the commands that show it, and the supervisor's own
configuration, which `up` writes."""

import enum
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gpu_control_plane.local.components import Health, Settings
from gpu_control_plane.local.credentials import write_private
from gpu_control_plane.local.errors import StateUnreadable
from gpu_control_plane.local.identity import ProcessIdentity
from gpu_control_plane.local.programs import Binaries
from gpu_control_plane.local.sidecars import SidecarRecord

_RECORD = "cluster.json"
_CONFIG = "supervisor.json"


class Phase(enum.StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"


class ComponentPhase(enum.StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPED = "Stopped"


class ComponentRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Of a node's program, `node/program`."""
    version: str
    address: str
    log: Path
    health: Health | None = None
    """Its health check; without one it counts as healthy while it runs."""
    phase: ComponentPhase = ComponentPhase.STARTING
    process: ProcessIdentity | None = None
    since: datetime | None = None
    took: float | None = None
    """Seconds from launch to ready, the last time."""
    restarts: int = 0
    last_exit: str | None = None


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    phase: Phase
    supervisor: ProcessIdentity
    since: datetime
    server: str | None = None
    components: tuple[ComponentRecord, ...] = ()
    sidecars: tuple[SidecarRecord, ...] = ()
    error: str | None = None


class SupervisorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` tells the supervisor to run."""

    settings: Settings
    binaries: Binaries


def read_record(folder: Path) -> ClusterRecord | None:
    """The cluster's record; None when there never was a cluster in this folder."""
    try:
        return _decode((folder / _RECORD).read_bytes(), ClusterRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise StateUnreadable(
            f"{folder / _RECORD}, the cluster's record, cannot be read ({error})."
            " Run `kubectl gpu down`, then `kubectl gpu up`."
        ) from error


def write_record(folder: Path, record: ClusterRecord) -> None:
    write_private(folder / _RECORD, _encode(record))


def is_cluster_folder(folder: Path) -> bool:
    """Whether a cluster was ever started in this folder."""
    return (folder / _CONFIG).exists() or (folder / _RECORD).exists()


def remove_record(folder: Path) -> None:
    (folder / _RECORD).unlink(missing_ok=True)


def read_config(folder: Path) -> SupervisorConfig:
    return _decode((folder / _CONFIG).read_bytes(), SupervisorConfig)


def write_config(folder: Path, config: SupervisorConfig) -> None:
    write_private(folder / _CONFIG, _encode(config))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _decode[T](data: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(data, type=kind, dec_hook=_path)


def _path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
