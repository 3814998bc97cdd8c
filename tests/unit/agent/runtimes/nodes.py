"""Nodes with a container runtime: real files in a folder, and programs that read them the way the real ones do."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit

from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.crio import Crio
from gpu_control_plane.agent.runtimes.docker import Docker
from gpu_control_plane.agent.runtimes.edit_log import EditLog
from gpu_control_plane.agent.runtimes.interface import OWN_FILE, RuntimeConfigError
from gpu_control_plane.agent.runtimes.tables import merge

OLD_TABLE = "io.containerd.grpc.v1.cri"
TABLE = "io.containerd.cri.v1.runtime"


class ContainerdNode:
    """containerd of some release; `breaks` makes it refuse whatever it is given."""

    def __init__(self, folder: Path, release: str = "2.1.4", main: str | None = None) -> None:
        self.folder = folder
        self.release = release
        self.main = folder / "containerd" / "config.toml"
        self.own = folder / "containerd" / "conf.d" / OWN_FILE
        self.main.parent.mkdir(parents=True, exist_ok=True)
        self.breaks_with: Path | None = None
        if main is not None:
            self.main.write_text(main)
        self.config = RuntimeConfig(Containerd(self.main, self.run), EditLog(folder / "state" / "containerd.json"))

    @property
    def files(self) -> dict[str, bytes]:
        """Every configuration file there is."""
        return {str(path): path.read_bytes() for path in self.main.parent.rglob("*") if path.is_file()}

    def run(self, command: Sequence[str]) -> str:
        if command[-1] == "--version":
            return f"containerd github.com/containerd/containerd v{self.release} 0123456789abcdef\n"
        assert list(command[-2:]) == ["config", "dump"]
        if self.breaks_with is not None and self.breaks_with.exists():
            raise RuntimeConfigError("containerd does not like that.")
        return tomlkit.dumps(self.dumped())

    def dumped(self) -> dict[str, Any]:
        major, minor = (int(part) for part in self.release.split(".")[:2])
        newest = 2 if major < 2 else 3 if minor < 3 else 4
        table = OLD_TABLE if major < 2 else TABLE
        cri: dict[str, Any] = {
            "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"],
            "containerd": {
                "runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2", "options": {"Root": "", "IoUid": 0}}}
            },
        }
        if (major, minor) < (2, 4):
            cri["enable_cdi"] = major >= 2
        for path in self._loaded():
            data = tomlkit.parse(path.read_text()).unwrap()
            assert data.get("version", 1) <= newest, "the configuration is newer than containerd"
            plugins = data.get("plugins", {})
            merge(cri, plugins.get(table) or plugins.get(OLD_TABLE) or {})
        return {"version": newest, "plugins": {table: cri}}

    def _loaded(self) -> list[Path]:
        if not self.main.exists():
            return []
        patterns = tomlkit.parse(self.main.read_text()).unwrap().get("imports", [])
        drop_ins = sorted((self.main.parent / "conf.d").glob("*"))
        return [self.main, *(path for path in drop_ins if any(fnmatch.fnmatch(str(path), item) for item in patterns))]


class CrioNode:
    def __init__(self, folder: Path, main: str | None = None, **drop_ins: str) -> None:
        self.main = folder / "crio" / "crio.conf"
        self.drop_ins = folder / "crio" / "crio.conf.d"
        self.own = self.drop_ins / OWN_FILE
        self.main.parent.mkdir(parents=True)
        if main is not None:
            self.main.write_text(main)
        for name, text in drop_ins.items():
            self.drop_ins.mkdir(exist_ok=True)
            (self.drop_ins / name).write_text(text)
        self.config = RuntimeConfig(Crio(self.main, self.drop_ins, self.run), EditLog(folder / "state" / "crio.json"))

    def run(self, command: Sequence[str]) -> str:
        assert command[-1] == "--version"
        return "crio version 1.33.2\nVersion:        1.33.2\n"


class DockerNode:
    def __init__(self, folder: Path, text: str | None = None, release: str = "27.5.1") -> None:
        self.file = folder / "docker" / "daemon.json"
        self.release = release
        self.file.parent.mkdir(parents=True)
        if text is not None:
            self.file.write_text(text)
        self.config = RuntimeConfig(Docker(self.file, self.run), EditLog(folder / "state" / "docker.json"))

    def run(self, command: Sequence[str]) -> str:
        if command[-1] == "--version":
            return f"Docker version {self.release}, build 0123456\n"
        assert "--validate" in command
        return "configuration OK\n"
