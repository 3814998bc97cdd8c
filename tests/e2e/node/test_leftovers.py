"""What a stopped or killed node leaves on the machine: nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from blocking_wait import until
from e2e.cluster_env import ClusterEnv
from e2e.conftest import strike
from gpu_control_plane.local import Binaries, RealNode
from gpu_control_plane.local.node.real_nodes import NODES_FOLDER, clear_nodes


def test_two_nodes_run_side_by_side_and_leave_nothing(start_cluster_env: Callable[..., ClusterEnv]) -> None:
    cluster_env = start_cluster_env("node-a", "node-b")
    nodes = list(cluster_env.cluster.nodes.values())
    for node in nodes:
        cluster_env.run_pod(f"on-{node.name}", node=node.name)
        assert cluster_env.exec(f"on-{node.name}", "hostname") == f"on-{node.name}\n"
    assert len({cluster_env.pod(f"on-{node.name}")["status"]["hostIP"] for node in nodes}) == 2
    spaces = [_process_namespace(node) for node in nodes]
    interfaces = [node.interface for node in nodes]
    assert all(len(_processes_in(space)) >= 4 for space in spaces)  # first process, containerd, kubelet, a shim
    assert all(_control_groups(interface) and _interfaces(interface) for interface in interfaces)
    strike(cluster_env)
    assert [pid for space in spaces for pid in _processes_in(space)] == []
    assert [left for interface in interfaces for left in _control_groups(interface) + _interfaces(interface)] == []
    assert str(cluster_env.cluster.folder) not in Path("/proc/self/mountinfo").read_text()


def test_a_killed_owner_leaves_no_process_and_the_rest_is_cleared(binaries: Binaries, short_folder: Path) -> None:
    folder = short_folder / "c"
    # The last network of this machine, which no other test is given once the owner of this one is gone.
    (folder / NODES_FOLDER).mkdir(parents=True)
    (folder / NODES_FOLDER / "network").write_text("-1")
    code = f"""
import os, pathlib, time
from gpu_control_plane.local import *
from gpu_control_plane.local.versions import NODE_PROGRAMS
parts = (Component.ETCD, Component.APISERVER)
programs = ensure_binaries([*parts, *NODE_PROGRAMS])
cluster = Cluster(pathlib.Path({str(folder)!r}), programs, Settings(components=parts, nodes=("n",)))
cluster.start()
print(os.getpid(), flush=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        assert owner.stdout.readline()
        number = (folder / NODES_FOLDER / "network").read_text()
        interface = f"gpu{number}-0"
        [space] = {_namespace(pid) for pid in _ids() if str(folder) in _command_line(pid)} - {
            _namespace(os.getpid()),
            "",
        }
        owner.kill()
    until(lambda: not _processes_in(space) and not _interfaces(interface))
    assert _control_groups(interface)
    clear_nodes(folder / NODES_FOLDER)
    assert _control_groups(interface) == []


def _process_namespace(node: RealNode) -> str:
    pid = node.command("true")[4]
    return str(Path(f"/proc/{pid}/ns/pid_for_children").readlink())


def _processes_in(space: str) -> list[int]:
    return [pid for pid in _ids() if _namespace(pid) == space]


def _ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:  # gone, or not ours to look at
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _control_groups(interface: str) -> list[Path]:
    return [*Path("/sys/fs/cgroup").glob(f"**/gpu-control-plane-{interface}")]


def _interfaces(interface: str) -> list[Path]:
    """What this machine has of a node's network: its veth pair to the router, to which the node has one, too."""
    uplink = interface.partition("-")[0]
    return [path for path in Path("/sys/class/net").iterdir() if path.name in (uplink, interface)]
