"""containerd, from 1.7 to 2.4.

Files of version 2 are edited themselves: in containerd 1.x an imported file replaces the whole CRI table instead of
adding to it. From version 3 on our entries are in a drop-in of their own, of the same version as the main file, and the
main file gets an import that matches this one file only, so that no other file in the folder takes effect.
"""

import fnmatch
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
    RuntimeConfigError,
    RuntimeHandler,
    RuntimeReport,
    WantedConfig,
)
from gpu_control_plane.agent.runtimes.tables import Keys, find

_CRI: Final[dict[int, Keys]] = {
    2: ("plugins", "io.containerd.grpc.v1.cri"),
    3: ("plugins", "io.containerd.cri.v1.runtime"),
    4: ("plugins", "io.containerd.cri.v1.runtime"),
}
_DROP_INS: Final = 3
"""First version of the file whose imports add to tables instead of replacing them."""
_ALWAYS_CDI: Final = (2, 4)
"""First release that always injects by CDI and no longer knows the switch for it."""
_SHIM: Final = "io.containerd.runc.v2"
_RELEASE: Final = re.compile(r"\bv?(\d+)\.(\d+)\.\d+\S*")


class Containerd:
    """containerd with its main file at `config`; `command` is its program on the node.

    Paths are those of the host: the agent must have the folder at the same path, since an import names it.
    """

    def __init__(self, config: Path, run: RunCommand, command: tuple[str, ...] = ("containerd",)) -> None:
        self._config = config
        self._run = run
        self._command = command

    @property
    def drop_in(self) -> Path:
        return self._config.parent / "conf.d" / OWN_FILE

    def report(self) -> RuntimeReport:
        cri = _cri_table(self.effective())
        version, release = self._release()
        dirs = tuple(cri.get("cdi_spec_dirs", ()))
        return RuntimeReport(
            name="containerd",
            version=version,
            cdi=bool(dirs) and bool(cri.get("enable_cdi", release >= _ALWAYS_CDI)),
            spec_dirs=dirs,
            handlers=tuple(sorted(find(cri, ("containerd", "runtimes")) or ())),
            default_handler=find(cri, ("containerd", "default_runtime_name")),
        )

    def effective(self) -> EffectiveConfig:
        dump = self._run((*self._command, "--config", str(self._config), "config", "dump"))
        return parse_file(Path("containerd config dump"), dump.encode()).data

    def edits(self, wanted: WantedConfig) -> tuple[FileEdit, ...]:
        main = self._main()
        effective = self.effective()
        version = self._file_version(main, effective)
        cri = _CRI[version]
        entries = self._entries(wanted, cri, _cri_table(effective))
        mark = SetValue(("version",), version)
        if version < _DROP_INS:
            return (FileEdit(self._config, (mark, *entries)),)
        theirs = (ListItem((*cri, "cdi_spec_dirs"), folder) for folder in find(main, (*cri, "cdi_spec_dirs")) or ())
        imports = () if self._imported(main) else (ListItem(("imports",), self._import),)
        return (
            FileEdit(self.drop_in, (mark, *theirs, *entries)),
            FileEdit(self._config, (mark, *imports)),
        )

    @property
    def _import(self) -> str:
        """A pattern rather than a name: containerd ignores its whole configuration when a named file is missing."""
        return str(self.drop_in.with_suffix("")) + "*.toml"

    def _main(self) -> EffectiveConfig:
        return parse_file(self._config, atomic_file.read(self._config) or b"").data

    def _file_version(self, main: EffectiveConfig, effective: EffectiveConfig) -> int:
        """The version of the main file; for an empty file, the version that this containerd writes itself."""
        found = main.get("version", 1) if main else effective.get("version")
        if isinstance(found, int) and found in _CRI:
            return found
        if found == 1:
            advice = "Convert it with `containerd config migrate`."
        else:
            advice = f"Known are {', '.join(map(str, _CRI))}."
        raise RuntimeConfigError(f"{self._config} is of version {found}, which cannot be configured here. {advice}")

    def _entries(self, wanted: WantedConfig, cri: Keys, effective: dict[str, Any]) -> tuple[Entry, ...]:
        _, release = self._release()
        switch = () if release >= _ALWAYS_CDI else (SetValue((*cri, "enable_cdi"), value=True),)
        dirs = (ListItem((*cri, "cdi_spec_dirs"), folder) for folder in wanted.spec_dirs)
        handler = _handler(wanted.handler, cri, effective) if wanted.handler else ()
        return (*switch, *dirs, *handler, *_default(wanted, cri))

    def _imported(self, main: EffectiveConfig) -> bool:
        """Whether another import matches our file already."""
        folder = str(self._config.parent)
        patterns = (item if item.startswith("/") else f"{folder}/{item}" for item in main.get("imports", ()))
        return any(fnmatch.fnmatch(str(self.drop_in), item) for item in patterns if item != self._import)

    def _release(self) -> tuple[str | None, tuple[int, int]]:
        found = _RELEASE.search(self._run((*self._command, "--version")))
        if found is None:
            return None, (0, 0)
        return found[0].removeprefix("v"), (int(found[1]), int(found[2]))


def _cri_table(effective: EffectiveConfig) -> dict[str, Any]:
    """The table of the CRI plugin; empty if the plugin is disabled."""
    tables = (find(effective, keys) for keys in reversed(_CRI.values()))
    return next((table for table in tables if table), {})


def _default(wanted: WantedConfig, cri: Keys) -> tuple[Entry, ...]:
    if wanted.handler is None or not wanted.default:
        return ()
    return (SetValue((*cri, "containerd", "default_runtime_name"), wanted.handler.name),)


def _handler(handler: RuntimeHandler, cri: Keys, effective: dict[str, Any]) -> tuple[Entry, ...]:
    """The handler's entries, with the options of the default one: another cgroup driver would break its pods."""
    here = (*cri, "containerd", "runtimes", handler.name)
    default = find(effective, ("containerd", "default_runtime_name")) or "runc"
    inherited = find(effective, ("containerd", "runtimes", default, "options")) or {}
    return (
        SetValue((*here, "runtime_type"), _SHIM),
        *(
            SetValue((*here, "options", name), value)
            for name, value in sorted(inherited.items())
            if value and name != "BinaryName" and isinstance(value, str | int)
        ),
        SetValue((*here, "options", "BinaryName"), handler.path),
    )
