"""The CDI spec file of this node: complete at every moment, and with every device that a pod still holds.

A container that restarts gets the CDI names that Allocate once answered, and the agent is not asked again; a name that
the runtime cannot resolve fails the container. So a device that is gone stays in the file while a pod holds it. What it
was is read from the file itself, so that a restart of the agent loses nothing. There is one writer per file.

With one exception. Device files are numbered, and numbers are used again: after a card was removed and the driver
loaded anew, `/dev/nvidia0` may be another card, and a capability file another MIG instance. A container that restarted
with the old entry would then have another pod's device. Such an entry is removed, and the container fails visibly.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.spec import KIND, Device, Spec, decode, encode, spec

FOLDER: Final = Path("/var/run/cdi")
"""For generated files; runtimes prefer it to `/etc/cdi`."""
FILE_NAME: Final = "gpu-control-plane.json"

_SUFFIXES: Final = frozenset({".json", ".yaml"})
"""What runtimes read; an unfinished file has another suffix."""
_DISPLAY: Final = "/dev/dri/"
"""Device files that a card can be used without, if it has any others."""


class ConflictingFile(msgspec.Struct, frozen=True):
    """Another program's file with devices of our kind. A runtime resolves no name that is in both files."""

    file: str
    devices: tuple[str, ...]
    """Names that both files have."""


class SpecChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did to the file, by the names of devices."""

    written: bool = False
    """The file was changed or removed."""
    added: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()
    """No longer wanted, but held by a pod."""
    withdrawn: tuple[str, ...] = ()
    """Held by a pod, but removed: their device files belong to another device now."""
    unknown: tuple[str, ...] = ()
    """Held by a pod, but not in the file: its containers cannot restart."""
    conflicting: tuple[ConflictingFile, ...] = ()
    damaged: str | None = None
    """Why the file that was there could not be read; it was replaced."""


class HeldDevices(msgspec.Struct, frozen=True):
    """What becomes of devices that are held and not wanted, each kind in the order of names."""

    retained: tuple[Device, ...]
    withdrawn: tuple[str, ...]
    unknown: tuple[str, ...]


def held_devices(known: Mapping[str, Device], wanted: Collection[Device], held: Collection[str]) -> HeldDevices:
    """Sort the devices that are held and not wanted; `known` is what the file had until now."""
    orphans = sorted(set(held) - {device.name for device in wanted})
    in_file = [known[name] for name in orphans if name in known]
    identities = [_identity(device) for device in wanted]
    retained = tuple(device for device in in_file if not any(each and each <= _identity(device) for each in identities))
    kept = {device.name for device in retained}
    return HeldDevices(
        retained=retained,
        withdrawn=tuple(device.name for device in in_file if device.name not in kept),
        unknown=tuple(name for name in orphans if name not in known),
    )


class SpecFile:
    """One CDI spec file in a folder that other programs may write to as well."""

    def __init__(self, folder: Path = FOLDER, name: str = FILE_NAME) -> None:
        self.path = folder / name
        self._unfinished = folder / f".{name}.unfinished"
        self._written: Spec | None = None
        """What we last wrote: if the file is lost, what pods hold is known from this."""
        self._left: tuple[int, int, int] | None = None
        """The file as we left it."""

    @property
    def intact(self) -> bool:
        """Whether the file is as we left it, by what the file system says of it."""
        return self._left == self._identity()

    def update(self, wanted: Collection[Device], common: Edits | None, held: Collection[str]) -> SpecChange:
        """Write the wanted devices, and those of the file that pods hold.

        When this returns, every wanted device can be advertised. `common` is None while there is no driver: what the
        file says about it stays. Writes only if something differs; raises OSError.
        """
        before, damaged = self._read()
        known = {device.name: device for device in before.devices} if before else {}
        kept = held_devices(known, wanted, held)
        after = {device.name: device for device in (*wanted, *kept.retained)}
        edits = _common(common, before)
        written = self._write(after.values(), edits)
        self._written, self._left = spec(after.values(), edits) if after else None, self._identity()
        return SpecChange(
            written=written,
            added=tuple(sorted(after.keys() - known.keys())),
            altered=tuple(sorted(name for name in after.keys() & known.keys() if after[name] != known[name])),
            removed=tuple(sorted(known.keys() - after.keys())),
            retained=tuple(device.name for device in kept.retained),
            withdrawn=kept.withdrawn,
            unknown=kept.unknown,
            conflicting=tuple(self._conflicting(after)),
            damaged=damaged,
        )

    def _read(self) -> tuple[Spec | None, str | None]:
        try:
            return decode(self.path.read_bytes()), None
        except FileNotFoundError:
            return self._written, None
        except ValueError as error:
            return self._written, f"{self.path} is not a CDI specification of ours: {error}"

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _write(self, devices: Collection[Device], common: Edits) -> bool:
        if not devices:  # a specification without devices is not valid
            existed = self.path.exists()
            self.path.unlink(missing_ok=True)
            return existed
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

    def _conflicting(self, ours: Collection[str]) -> Iterator[ConflictingFile]:
        if not self.path.parent.is_dir():
            return
        for file in sorted(self.path.parent.iterdir()):
            if file.suffix not in _SUFFIXES or file == self.path or not file.is_file():
                continue
            theirs = _devices_of_our_kind(file)
            if theirs is not None:
                yield ConflictingFile(file.name, tuple(sorted(theirs.intersection(ours))))


class _Named(msgspec.Struct):
    name: str


class _Foreign(msgspec.Struct):
    kind: str
    devices: list[_Named] = []


def _devices_of_our_kind(file: Path) -> frozenset[str] | None:
    """The devices in another program's file; None if it is of another kind, unreadable for runtimes too, or gone."""
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


def _identity(device: Device) -> frozenset[tuple[str, str, int, int]]:
    """The device files that give access to a device: a container that has all of them can use it."""
    nodes = device.container_edits.device_nodes
    needed = [node for node in nodes if not node.path.startswith(_DISPLAY)] or nodes
    return frozenset((node.path, node.type, node.major, node.minor) for node in needed)
