"""What a running cluster writes about itself for the commands that look at it. One writer: the supervisor."""

import enum
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gpu_control_plane.local.companions import CompanionRecord
from gpu_control_plane.local.components import Health, Settings
from gpu_control_plane.local.credentials import write_private
from gpu_control_plane.local.errors import StateUnreadable
from gpu_control_plane.local.identity import ProcessIdentity
from gpu_control_plane.local.programs import Binaries

_RECORD = "cluster.json"
_ORDER = "order.json"


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
    """How to ask it whether it is well; what cannot be asked is well while it runs."""
    phase: ComponentPhase = ComponentPhase.STARTING
    process: ProcessIdentity | None = None
    since: datetime | None = None
    took: float | None = None
    """Seconds from launch to ready, the last time."""
    restarts: int = 0
    last_exit: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    phase: Phase
    supervisor: ProcessIdentity
    since: datetime
    server: str | None = None
    components: tuple[ComponentRecord, ...] = ()
    companions: tuple[CompanionRecord, ...] = ()
    error: str | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` asks of the supervisor it starts."""

    settings: Settings
    binaries: Binaries


def read_record(folder: Path) -> Record | None:
    """The cluster's record; nothing when there never was a cluster here."""
    try:
        return _decode((folder / _RECORD).read_bytes(), Record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise StateUnreadable(
            f"{folder / _RECORD}, the cluster's record, cannot be read ({error})."
            " Run `kubectl gpu down`, then `kubectl gpu up`."
        ) from error


def write_record(folder: Path, record: Record) -> None:
    write_private(folder / _RECORD, _encode(record))


def is_cluster_folder(folder: Path) -> bool:
    """Whether a cluster was ever meant to live here."""
    return (folder / _ORDER).exists() or (folder / _RECORD).exists()


def remove_record(folder: Path) -> None:
    (folder / _RECORD).unlink(missing_ok=True)


def read_order(folder: Path) -> Order:
    return _decode((folder / _ORDER).read_bytes(), Order)


def write_order(folder: Path, order: Order) -> None:
    write_private(folder / _ORDER, _encode(order))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _decode[T](data: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(data, type=kind, dec_hook=_path)


def _path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
