"""CRI-O: reads its main file and then a folder of drop-ins in order, and always injects by CDI."""

import re
from pathlib import Path
from typing import Any, Final

from gpu_control_plane.agent.runtimes import atomic_file
from gpu_control_plane.agent.runtimes.config_document import Entry, ListItem, SetValue
from gpu_control_plane.agent.runtimes.edit_log import parse_file
from gpu_control_plane.agent.runtimes.interface import (
    OWN_FILE,
    EffectiveConfig,
    FileEdit,
    RunCommand,
    RuntimeReport,
    WantedConfig,
)
from gpu_control_plane.agent.runtimes.tables import find, merge

_DEFAULT_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
_RUNTIME: Final = ("crio", "runtime")
_RELEASE: Final = re.compile(r"\b\d+\.\d+\.\d+\S*")


class Crio:
    """CRI-O with its main file and its folder of drop-ins; `command` is its program on the node."""

    def __init__(self, config: Path, drop_ins: Path, run: RunCommand, command: tuple[str, ...] = ("crio",)) -> None:
        self._config = config
        self._drop_ins = drop_ins
        self._run = run
        self._command = command

    def report(self) -> RuntimeReport:
        table = find(self.effective(), _RUNTIME) or {}
        found = _RELEASE.search(self._run((*self._command, "--version")))
        dirs = tuple(table.get("cdi_spec_dirs", _DEFAULT_DIRS))
        return RuntimeReport(
            name="cri-o",
            version=found[0] if found else None,
            cdi=bool(dirs),
            spec_dirs=dirs,
            handlers=tuple(sorted(table.get("runtimes", ()))),
            default_handler=table.get("default_runtime"),
        )

    def effective(self) -> EffectiveConfig:
        """The files as CRI-O reads them: one after the other, later ones over earlier ones."""
        return self._read(*sorted(self._drop_ins.glob("*")))

    def edits(self, wanted: WantedConfig) -> tuple[FileEdit, ...]:
        own = self._drop_ins / OWN_FILE
        others = self._read(*(path for path in sorted(self._drop_ins.glob("*")) if path != own))
        theirs = find(others, (*_RUNTIME, "cdi_spec_dirs")) or ()
        dirs: list[Entry] = [
            ListItem((*_RUNTIME, "cdi_spec_dirs"), folder) for folder in dict.fromkeys((*theirs, *wanted.spec_dirs))
        ]
        return (FileEdit(own, (*dirs, *_handler(wanted))),)

    def _read(self, *drop_ins: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for path in (self._config, *drop_ins):
            content = atomic_file.read(path)
            if content is not None:
                merge(merged, parse_file(path, content).data)
        return merged


def _handler(wanted: WantedConfig) -> tuple[Entry, ...]:
    if wanted.handler is None:
        return ()
    here = (*_RUNTIME, "runtimes", wanted.handler.name)
    default = (SetValue((*_RUNTIME, "default_runtime"), wanted.handler.name),) if wanted.default else ()
    return (*default, SetValue((*here, "runtime_path"), wanted.handler.path), SetValue((*here, "runtime_type"), "oci"))
