"""What we write for containerd, read by a real containerd; and the command on a node whose pods run."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocking_wait import until
from e2e.agent.agent_env import AgentEnv, agent_env_on
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.edit_log import EditLog
from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from gpu_control_plane.agent.runtimes.setup import run_command
from gpu_control_plane.api.gpunodestate import Injection, Toolkit
from gpu_control_plane.local import ensure_binaries
from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.store import Store
from gpu_control_plane.local.versions import CONTAINERD

TABLE = "io.containerd.cri.v1.runtime"
WANTED = WantedConfig(
    spec_dirs=("/etc/cdi", "/var/run/cdi", "/srv/cdi"), handler=RuntimeHandler("/opt/nvidia/nvidia-container-runtime")
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
        pytest.skip("containerd is not in the cache of binaries; `make node-binaries` puts it there")
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "containerd"
    folder.mkdir()
    return folder / "config.toml"


@pytest.fixture
def runtime(containerd: Path, config: Path, tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(Containerd(config, run_command, (str(containerd),)), EditLog(tmp_path / "edit_log.json"))


def effective(containerd: Path, config: Path) -> dict[str, Any]:
    """The CRI part of what containerd makes of its files."""
    dump = tomllib.loads(run_command((str(containerd), "--config", str(config), "config", "dump")))
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
    assert runtime.set(WantedConfig()).files == ()
    assert not config.exists()
    assert runtime.inspect().toolkit() == Toolkit(
        injection=Injection.CDI, runtime=f"containerd://{CONTAINERD.version.removeprefix('v')}"
    )


def test_what_containerd_itself_cannot_read_is_left_alone(config: Path, runtime: RuntimeConfig) -> None:
    config.write_text("version = 3\n[plugins\n")

    with pytest.raises(RuntimeConfigError, match="failed to unmarshal TOML"):
        runtime.set(WANTED)

    assert config.read_text() == "version = 3\n[plugins\n"


class Command:
    """`python -m gpu_control_plane.agent.runtimes` for the containerd of a node, as a person types it there."""

    def __init__(self, cluster_env: ClusterEnv, containerd: Path, state: Path) -> None:
        self.cluster_env = cluster_env
        self.config = cluster_env.node.containerd_config
        self.state = state
        self.environment = {**os.environ, "PATH": f"{containerd.parent}:{os.environ['PATH']}"}
        # The node's own runc in the role of NVIDIA's runtime: containers really start through it.
        self.nvidia = ("--nvidia-runtime", runtimes_of(self.config)["runc"]["options"]["BinaryName"])

    def __call__(self, command: str, *options: str) -> int:
        arguments = ("-m", "gpu_control_plane.agent.runtimes", command, *self.place, *options)
        return subprocess.run([sys.executable, *arguments], env=self.environment, check=False, timeout=60).returncode

    @property
    def place(self) -> tuple[str, ...]:
        return ("--runtime", "containerd", "--config", str(self.config), "--state", str(self.state))

    @property
    def files(self) -> dict[str, bytes]:
        paths = (self.config, *self.cluster_env.node.containerd_drop_ins.iterdir())
        return {str(path): path.read_bytes() for path in paths}


def runtimes_of(config: Path) -> dict[str, Any]:
    runtimes: dict[str, Any] = tomllib.loads(config.read_text())["plugins"][TABLE]["containerd"]["runtimes"]
    return runtimes


@pytest.fixture
def command(cluster_env: ClusterEnv, containerd: Path, tmp_path: Path) -> Iterator[Command]:
    command = Command(cluster_env, containerd, tmp_path / "state")
    yield command
    command("undo")


def test_a_pod_outlives_set_and_restart_and_new_ones_start_through_what_was_set(
    cluster_env: ClusterEnv, command: Command
) -> None:
    before = command.files
    cluster_env.run_pod("steady")
    assert command("verify", *command.nvidia) == 1
    assert command("set", *command.nvidia) == 0
    assert command("verify", *command.nvidia) == 0
    cluster_env.node.containerd.restart()
    until(lambda: cluster_env.answers("steady"))
    handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    cluster_env.kubectl("create", "-f", "-", given=json.dumps({**handler, "handler": "nvidia"}))
    cluster_env.run_pod("through", runtimeClassName="nvidia")
    assert command("inspect") == 0
    assert command("undo") == 0
    assert command.files == before
    cluster_env.node.containerd.restart()
    assert command("verify", *command.nvidia) == 1
    assert cluster_env.container("steady")["restartCount"] == 0
    cluster_env.run_pod("afterwards")


def test_the_agent_configures_the_runtime_when_told_to_and_leaves_it_so(
    cluster_env: ClusterEnv, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", command.environment["PATH"])
    before = command.files
    env = AgentEnv(cluster_env)
    place = ("--runtime", "containerd", "--runtime-config", str(command.config), "--runtime-state", str(command.state))
    try:
        env.start_agent("--configure-runtime", *place, *command.nvidia)
        until(lambda: "container runtime configured" in (cluster_env.node.logs / "agent.log").read_text())
        env.stop_agent()
    finally:
        env.close()
    assert command("verify", *command.nvidia, "--cdi-folder", str(cluster_env.node.cdi)) == 0
    assert command.files != before
    assert command("undo") == 0
    assert command.files == before


def test_a_node_whose_runtime_has_cdi_switched_off_says_so(cluster_env: ClusterEnv) -> None:
    config, socket = cluster_env.node.containerd_config, cluster_env.node.containerd_socket
    before = config.read_text()
    with agent_env_on(cluster_env, without=("pools",), agent=("--container-runtime", str(socket))) as env:
        until(lambda: missing(env) == "False")
        try:
            config.write_text(before.replace('cdi_spec_dirs = ["/run/cdi"]', "cdi_spec_dirs = []"))
            cluster_env.node.containerd.restart()
            until(lambda: missing(env) == "True", within=90)
            assert "does not resolve CDI names" in json.dumps(env.state()["status"]["conditions"])
        finally:
            config.write_text(before)
        cluster_env.node.containerd.restart()
        until(lambda: missing(env) == "False", within=90)


def missing(env: AgentEnv) -> str:
    conditions = env.state().get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == "ToolkitMissing"), "")
