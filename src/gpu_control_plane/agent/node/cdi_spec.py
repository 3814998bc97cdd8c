"""Keeps the node's CDI spec, and the description of what can be injected into containers, up to date."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from gpu_control_plane.agent.backends.interface import Backend, Instance
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.injectable import InjectableDevices, injectable_devices
from gpu_control_plane.agent.cdi.spec_file import SpecChange, SpecFile
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.api.gpunodestate import Injection

_log = structlog.get_logger(component="agent.cdi_spec")


class _Outline(msgspec.Struct, frozen=True):
    """What a description depends on; a probe that finds the same needs no new one."""

    driver: str | None
    cards: tuple[tuple[str, str | None, int | None, bool, tuple[Instance, ...]], ...]


class CDISpecWriter:
    """`container_edits` says what every container needs of the driver, given its version."""

    def __init__(
        self,
        watch: HardwareWatch,
        folder: Path,
        injection: Injection,
        container_edits: Callable[[str | None], Edits],
        *,
        host: HostPaths,
    ) -> None:
        self._watch = watch
        self._file = SpecFile(folder)
        self._injection = injection
        self._container_edits = container_edits
        self._host = host
        self._outline: _Outline | None = None
        self._written: tuple[InjectableDevices, frozenset[str]] | None = None
        self._edits: tuple[str | None, Edits] | None = None
        self.description: InjectableDevices | None = None
        self.tried = False
        """Whether a description was attempted: before, that there is none means nothing."""

    async def describe(self, hardware: HardwareSnapshot) -> InjectableDevices:
        """What containers can be given of this hardware."""
        self.tried = True
        outline = _outline(hardware)
        if self.description is None or outline != self._outline:
            self.description = await self._watch.call(self._describe, outline.driver)
            self._outline = outline
        return self.description

    async def write(self, held: frozenset[str]) -> None:
        """Write the CDI spec for the latest description, unless it is there as we left it. Devices that pods hold stay
        in it, whatever the hardware shows."""
        if self._injection is not Injection.CDI or self.description is None:
            return
        if self._written is not None and self._written[0] is self.description and self._written[1] == held:
            if await asyncio.to_thread(lambda: self._file.intact):
                return
            _log.warning("the CDI spec was changed or removed by another program; it is written anew")
        description = self.description
        self._log(await asyncio.to_thread(self._file.update, description.devices, description.common, held))
        self._written = description, held

    def _describe(self, backend: Backend, version: str | None) -> InjectableDevices:
        if self._edits is None or self._edits[0] != version:
            self._edits = version, self._container_edits(version)
        description = injectable_devices(backend, self._edits[1], self._host)
        for problem in description.problems:
            _log.warning("device cannot be injected", why=problem)
        return description

    def _log(self, change: SpecChange) -> None:
        if change.written:
            _log.info("CDI spec written", added=change.added, removed=change.removed, retained=change.retained)
        if change.withdrawn:
            _log.warning("device files of pods belong to other cards now", devices=change.withdrawn)
        if change.unknown:
            _log.warning("pods hold devices that no CDI spec describes", devices=change.unknown)
        for conflict in change.conflicting:
            _log.warning("another CDI file names our devices; remove it", file=conflict.file, devices=conflict.devices)


def _outline(hardware: HardwareSnapshot) -> _Outline:
    driver = hardware.node_facts.driver
    return _Outline(
        driver.version if driver else None,
        tuple(
            (card.id, card.hardware.uuid, card.details.minor, card.mig_enabled, card.instances)
            for card in hardware.observed.values()
        ),
    )
