"""What we write for containerd, read by a real containerd."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.agent.runtimes.commands import run
from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.interface import Handler, RuntimeConfigError, Wanted
from gpu_control_plane.agent.runtimes.ledger import Ledger
from gpu_control_plane.api.gpunodestate import Injection, Toolkit
from gpu_control_plane.local import ensure_binaries
from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import CONTAINERD

TABLE = "io.containerd.cri.v1.runtime"
WANTED = Wanted(
    spec_dirs=("/etc/cdi", "/var/run/cdi", "/srv/cdi"), handler=Handler("/opt/nvidia/nvidia-container-runtime")
)
VERSION_2 = """\
# from the days of containerd 1.7
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
[plugins."io.containerd.gc.v1.scheduler"]
  pause_threshold = 0.02
[plugins."io.containerd.grpc.v1.cri".cni] # far from its kin
  max_conf_num = 3
"""
VERSION_3 = f"""\
version = 3
[plugins.'{TABLE}']
  cdi_spec_dirs = ["/opt/cdi"]
[plugins.'{TABLE}'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'{TABLE}'.containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins.'{TABLE}'.cni]
  max_conf_num = 3
"""
VERSION_4 = VERSION_3.replace("version = 3", "version = 4")


@pytest.fixture(scope="module")
def containerd() -> Path:
    """The program; in CI it is fetched or built, elsewhere it has to be there."""
    if os.environ.get("CI") == "true":
        return ensure_binaries(["containerd"]).path("containerd")
    found = Store(cache_folder(os.environ), this_platform()).find("containerd")
    if found is None:
        pytest.skip("containerd is not in the cache of binaries; `make binaries` puts it there")
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "containerd"
    folder.mkdir()
    return folder / "config.toml"


@pytest.fixture
def runtime(containerd: Path, config: Path, tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(Containerd(config, run, (str(containerd),)), Ledger(tmp_path / "ledger.json"))


def effective(containerd: Path, config: Path) -> dict[str, Any]:
    """The CRI part of what containerd makes of its files."""
    dump = tomllib.loads(run((str(containerd), "--config", str(config), "config", "dump")))
    table: dict[str, Any] = dump["plugins"][TABLE]
    return table


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        pytest.param(VERSION_2, ["/etc/cdi", "/var/run/cdi", "/srv/cdi"], id="version 2, migrated"),
        pytest.param(VERSION_3, ["/opt/cdi", "/etc/cdi", "/var/run/cdi", "/srv/cdi"], id="version 3"),
        pytest.param(VERSION_4, ["/opt/cdi", "/etc/cdi", "/var/run/cdi", "/srv/cdi"], id="version 4"),
    ],
)
def test_containerd_understands_what_we_add_and_keeps_the_rest(
    containerd: Path, config: Path, runtime: RuntimeConfig, text: str, folders: list[str]
) -> None:
    config.write_text(text)
    before = effective(containerd, config)

    change = runtime.set(WANTED)

    assert change.restart_due
    assert runtime.verify(WANTED) == ()
    after = effective(containerd, config)
    assert after["cdi_spec_dirs"] == folders
    handler = after["containerd"]["runtimes"]["nvidia"]
    assert handler["runtime_type"] == "io.containerd.runc.v2"
    assert handler["options"] == {"BinaryName": "/opt/nvidia/nvidia-container-runtime", "SystemdCgroup": True}
    assert after["containerd"]["runtimes"]["runc"] == before["containerd"]["runtimes"]["runc"]
    assert after["cni"]["max_conf_num"] == 3
    assert runtime.set(WANTED).files == ()

    runtime.undo()

    assert [path.read_text() for path in config.parent.rglob("*") if path.is_file()] == [text]
    assert effective(containerd, config) == before


def test_a_containerd_without_any_file_is_configured_from_nothing(
    containerd: Path, config: Path, runtime: RuntimeConfig
) -> None:
    runtime.set(WANTED)

    assert runtime.verify(WANTED) == ()
    assert effective(containerd, config)["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi", "/srv/cdi"]
    runtime.undo()
    assert list(config.parent.iterdir()) == []


def test_todays_containerd_needs_nothing_for_cdi(config: Path, runtime: RuntimeConfig) -> None:
    assert runtime.set(Wanted()).files == ()
    assert not config.exists()
    assert runtime.inspect().toolkit() == Toolkit(
        injection=Injection.CDI, runtime=f"containerd://{CONTAINERD.version.removeprefix('v')}"
    )


def test_what_containerd_itself_cannot_read_is_left_alone(config: Path, runtime: RuntimeConfig) -> None:
    config.write_text("version = 3\n[plugins\n")

    with pytest.raises(RuntimeConfigError, match="failed to unmarshal TOML"):
        runtime.set(WANTED)

    assert config.read_text() == "version = 3\n[plugins\n"
