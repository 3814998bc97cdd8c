"""What containers are dressed in: keeps the CDI file, and the description of every card, true."""

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import structlog

from gpu_control_plane.agent.backends.interface import Backend, Instance
from gpu_control_plane.agent.cdi.describe import Description, describe
from gpu_control_plane.agent.cdi.store import Change, Store
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.vendors.nvidia.driver_files import DriverFiles
from gpu_control_plane.agent.vendors.nvidia.hooks import HookProgram
from gpu_control_plane.api.gpunodestate import Injection

_log = structlog.get_logger(component="agent.wardrobe")


class _Outline(msgspec.Struct, frozen=True):
    """What a description depends on; probes that find the same need no new one."""

    driver: str | None
    cards: tuple[tuple[str, str | None, int | None, bool, tuple[Instance, ...]], ...]


class Wardrobe:
    """`find_driver` looks for the driver's files, given its version; None where cards need none."""

    def __init__(
        self,
        watch: HardwareWatch,
        folder: Path,
        injection: Injection,
        find_driver: Callable[[str | None], DriverFiles | None],
        *,
        host: HostPaths,
        hooks: HookProgram | None = None,
    ) -> None:
        self._watch = watch
        self._store = Store(folder)
        self._injection = injection
        self._find_driver = find_driver
        self._host = host
        self._hooks = hooks if injection is Injection.CDI else None
        self._outline: _Outline | None = None
        self._held: frozenset[str] = frozenset()
        self._files: tuple[str | None, DriverFiles | None] | None = None
        self.description: Description | None = None
        self.tried = False
        """Whether a description was attempted: before, that there is none means nothing."""

    async def refresh(self, picture: Picture, held: Collection[str]) -> Description:
        """Describe what can be handed out, and write it down before anybody is offered it."""
        self.tried = True
        outline, names = _outline(picture), frozenset(held)
        if self.description is None or outline != self._outline:
            self.description = await self._watch.call(self._describe, outline.driver)
        elif names == self._held:
            return self.description
        if self._injection is Injection.CDI:
            self._tell(await self._watch.call(self._write, self.description, names))
        self._outline, self._held = outline, names
        return self.description

    def _describe(self, backend: Backend, version: str | None) -> Description:
        if self._files is None or self._files[0] != version:
            self._files = version, self._find_driver(version)
        description = describe(backend, self._files[1], self._host, self._hooks)
        for problem in description.problems:
            _log.warning("something cannot be given to containers", why=problem)
        return description

    def _write(self, _backend: Backend, description: Description, held: frozenset[str]) -> Change:
        return self._store.refresh(description.devices, description.common, held)

    def _tell(self, change: Change) -> None:
        if change.written:
            _log.info("CDI file written", added=change.added, removed=change.removed, retained=change.retained)
        if change.withdrawn:
            _log.warning("device files of pods belong to other cards now", devices=change.withdrawn)
        if change.unknown:
            _log.warning("pods hold devices that nobody knows any more", devices=change.unknown)
        for rival in change.rivals:
            _log.warning("another CDI file names our devices; remove it", file=rival.file, devices=rival.devices)


def _outline(picture: Picture) -> _Outline:
    driver = picture.known_facts.driver
    return _Outline(
        driver.version if driver else None,
        tuple(
            (card.id, card.hardware.uuid, card.details.minor, card.is_cut, card.instances)
            for card in picture.seen.values()
        ),
    )
