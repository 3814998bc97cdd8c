"""Docker: one JSON file and no drop-ins."""

import re
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.runtimes import atomic_file
from gpu_control_plane.agent.runtimes.config_document import Entry, ListItem, SetValue
from gpu_control_plane.agent.runtimes.edit_log import parse_file
from gpu_control_plane.agent.runtimes.interface import (
    EffectiveConfig,
    FileEdit,
    RunCommand,
    RuntimeReport,
    WantedConfig,
)
from gpu_control_plane.agent.runtimes.tables import find

_DEFAULT_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
_CDI_BY_DEFAULT: Final = (28, 2)
_RELEASE: Final = re.compile(r"\b(\d+)\.(\d+)\.\d+[^\s,]*")


class Docker:
    """Docker with its `daemon.json`; `command` is the daemon's program on the node."""

    def __init__(self, config: Path, run: RunCommand, command: tuple[str, ...] = ("dockerd",)) -> None:
        self._config = config
        self._run = run
        self._command = command

    def report(self) -> RuntimeReport:
        data = self._data()
        found = _RELEASE.search(self._run((*self._command, "--version")))
        release = (int(found[1]), int(found[2])) if found else (0, 0)
        switch = find(data, ("features", "cdi"))
        return RuntimeReport(
            name="docker",
            version=found[0] if found else None,
            cdi=bool(switch) if switch is not None else release >= _CDI_BY_DEFAULT,
            spec_dirs=tuple(find(data, ("cdi-spec-dirs",)) or _DEFAULT_DIRS),
            handlers=tuple(sorted(find(data, ("runtimes",)) or ())),
            default_handler=find(data, ("default-runtime",)),
        )

    def effective(self) -> EffectiveConfig:
        """The file, once the daemon has found it valid."""
        data = self._data()
        if data:
            self._run((*self._command, "--validate", "--config-file", str(self._config)))
        return data

    def edits(self, wanted: WantedConfig) -> tuple[FileEdit, ...]:
        dirs: list[Entry] = [ListItem(("cdi-spec-dirs",), folder) for folder in wanted.spec_dirs]
        handler = wanted.handler
        entry = (SetValue(("runtimes", handler.name, "path"), handler.path),) if handler else ()
        default = (SetValue(("default-runtime",), handler.name),) if handler and wanted.default else ()
        return (FileEdit(self._config, (SetValue(("features", "cdi"), value=True), *dirs, *entry, *default)),)

    @property
    def restarts_alone(self) -> bool:
        """Whether containers outlive a restart of the daemon."""
        return bool(find(self._data(), ("live-restore",)))

    def _data(self) -> EffectiveConfig:
        return parse_file(self._config, atomic_file.read(self._config) or b"").data
