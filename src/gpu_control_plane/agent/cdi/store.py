"""The CDI file of this node: whole at every moment, and never without a device that a pod still holds.

A container that restarts is made from the names its pod got once, without anybody asking again; a name that resolves
to nothing fails it. So a device that vanished stays in the file while it is held. What was known before comes from the
file itself, which makes restarts of the agent harmless. There is one writer per file.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.retention import retain
from gpu_control_plane.agent.cdi.spec import KIND, Device, Spec, decode, encode, spec

FOLDER: Final = Path("/var/run/cdi")
"""For generated files; it goes before `/etc/cdi`."""
NAME: Final = "gpu-control-plane.json"

_SUFFIXES: Final = frozenset({".json", ".yaml"})
"""What runtimes read. An unfinished file ends otherwise."""


class Rival(msgspec.Struct, frozen=True):
    """Somebody else's file with devices of our kind. What both files name resolves to nothing at all."""

    file: str
    devices: tuple[str, ...]
    """Names that both files have."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh did to the file, by the names of devices."""

    written: bool = False
    """The file is another one than before, or gone."""
    added: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()
    """No longer wanted, kept because a pod holds them."""
    withdrawn: tuple[str, ...] = ()
    """Held by a pod, but their device files belong to another device now: its containers must not restart with that."""
    unknown: tuple[str, ...] = ()
    """Held by a pod, and nobody knows what they were: its containers cannot restart."""
    rivals: tuple[Rival, ...] = ()
    damaged: str | None = None
    """Why the file that was there could not be read; it was replaced."""


class Store:
    """One CDI file in a folder that others may write to as well."""

    def __init__(self, folder: Path = FOLDER, name: str = NAME) -> None:
        self.path = folder / name
        self._unfinished = folder / f".{name}.unfinished"

    def refresh(self, wanted: Collection[Device], common: Edits | None, held: Collection[str]) -> Change:
        """Make the file hold what is wanted, and of what it held before, that which is held by pods.

        When this returns, every wanted device can be advertised. `common` is None while the driver is away: what was
        known about it stays. Writes only what differs; raises OSError when it cannot.
        """
        before, damaged = self._read()
        known = {device.name: device for device in before.devices} if before else {}
        kept = retain(known, wanted, held)
        after = {device.name: device for device in (*wanted, *kept.retained)}
        written = self._bring_about(after.values(), _common(common, before))
        return Change(
            written=written,
            added=tuple(sorted(after.keys() - known.keys())),
            altered=tuple(sorted(name for name in after.keys() & known.keys() if after[name] != known[name])),
            removed=tuple(sorted(known.keys() - after.keys())),
            retained=tuple(device.name for device in kept.retained),
            withdrawn=kept.withdrawn,
            unknown=kept.unknown,
            rivals=tuple(self._rivals(after)),
            damaged=damaged,
        )

    def _read(self) -> tuple[Spec | None, str | None]:
        try:
            return decode(self.path.read_bytes()), None
        except FileNotFoundError:
            return None, None
        except ValueError as error:
            return None, f"{self.path} is not a CDI specification of ours: {error}"

    def _bring_about(self, devices: Collection[Device], common: Edits) -> bool:
        if not devices:  # a specification without devices is not valid
            there = self.path.exists()
            self.path.unlink(missing_ok=True)
            return there
        content = encode(spec(devices, common))
        if self.path.exists() and self.path.read_bytes() == content:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._unfinished.chmod(0o644)
        self._unfinished.replace(self.path)
        return True

    def _rivals(self, ours: Collection[str]) -> Iterator[Rival]:
        if not self.path.parent.is_dir():
            return
        for file in sorted(self.path.parent.iterdir()):
            if file.suffix not in _SUFFIXES or file == self.path or not file.is_file():
                continue
            theirs = _devices_of_our_kind(file)
            if theirs is not None:
                yield Rival(file.name, tuple(sorted(theirs.intersection(ours))))


class _Named(msgspec.Struct):
    name: str


class _Foreign(msgspec.Struct):
    kind: str
    devices: list[_Named] = []


def _devices_of_our_kind(file: Path) -> frozenset[str] | None:
    """The devices in somebody else's file; None if it is of another kind, unreadable to runtimes too, or just gone."""
    try:
        data = file.read_bytes()
        if KIND.encode() not in data:
            return None
        foreign = msgspec.yaml.decode(data, type=_Foreign)  # JSON is YAML too
    except (FileNotFoundError, ValueError):
        return None
    return frozenset(device.name for device in foreign.devices) if foreign.kind == KIND else None


def _common(wanted: Edits | None, before: Spec | None) -> Edits:
    if wanted is not None:
        return wanted
    return before.container_edits if before else Edits()
