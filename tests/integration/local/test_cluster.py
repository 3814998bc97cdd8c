"""A cluster owned by a program: started, stopped, broken and brought back."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blocking_wait import until
from gpu_control_plane.local import Binaries, Cluster, Component
from gpu_control_plane.local.errors import ClusterBusy, ComponentFailed, PortTaken
from gpu_control_plane.local.identity import identify, is_alive
from integration.local.commands import Kubectl

MakeCluster = Callable[..., Cluster]


def test_data_and_address_survive_a_crash_and_a_restart(small_cluster: MakeCluster, binaries: Binaries) -> None:
    cluster = small_cluster()
    cluster.start()
    kubectl = Kubectl(binaries.path("kubectl"), cluster.kubeconfig)
    kubectl("create", "namespace", "kept")
    address = cluster.server

    cluster.stop_component(Component.APISERVER, signal.SIGKILL)
    assert cluster.pid("kube-apiserver") is None
    cluster.start_component(Component.APISERVER)
    assert cluster.server == address
    assert "kept" in kubectl("get", "namespaces")

    everything = [identify(cluster.pid(component) or 0) for component in cluster.settings.components]
    assert all(is_alive(process) for process in everything)
    cluster.stop()
    assert not any(is_alive(process) for process in everything)

    cluster.start()
    assert cluster.server == address
    assert "kept" in kubectl("get", "namespaces")


def test_secrets_are_for_their_owner_only(api_server: Cluster) -> None:
    keys = [path for path in api_server.folder.rglob("*") if path.suffix in (".key", ".kubeconfig")]
    assert {path.stat().st_mode & 0o777 for path in [*keys, api_server.kubeconfig]} == {0o600}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_servers_listen_for_this_machine_only(api_server: Cluster) -> None:
    assert _listening(api_server) == {"0100007F"}  # 127.0.0.1 as the kernel writes it


def test_a_request_without_a_certificate_is_refused(api_server: Cluster) -> None:
    refused = subprocess.run(
        ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", f"{api_server.server}/api/v1/secrets"],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.stdout == "401"
    etcd = f"https://127.0.0.1:{api_server.plan.ports.etcd}/version"
    assert subprocess.run(["curl", "-sk", etcd], check=False).returncode != 0  # noqa: S607


def test_killing_the_owner_leaves_no_process(tmp_path: Path) -> None:
    code = f"""
import pathlib, time
from gpu_control_plane.local import *
small = (Component.ETCD, Component.APISERVER)
cluster = Cluster(pathlib.Path({str(tmp_path / "cluster")!r}), ensure_binaries(small), Settings(components=small))
cluster.start()
print(*[cluster.pid(component) for component in small], flush=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        children = [identify(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(children) == 2
        assert all(is_alive(child) for child in children)
        owner.kill()
    until(lambda: not any(is_alive(child) for child in children))


def test_two_owners_of_one_folder_are_refused(small_cluster: MakeCluster, api_server: Cluster) -> None:
    with pytest.raises(ClusterBusy, match="is run by another process"):
        small_cluster(folder=api_server.folder).start()


def test_a_component_that_dies_at_start_shows_the_end_of_its_log(small_cluster: MakeCluster) -> None:
    cluster = small_cluster(flags={Component.APISERVER: ("--authorization-mode=Nonsense",)})
    with pytest.raises(ComponentFailed, match=r"(?s)kube-apiserver ended with code 1.*kube-apiserver\.log:.*Nonsense"):
        cluster.start()
    assert cluster.pid(Component.ETCD) is None


def test_a_port_that_was_asked_for_and_is_taken_is_named(small_cluster: MakeCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} "):
            small_cluster(port=port).start()


def test_a_port_that_is_lost_in_the_last_moment_is_replaced(
    small_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = small_cluster()
    launch = cluster.launch
    thieves: list[socket.socket] = []

    def steal_and_launch(component: Component) -> None:
        if not thieves:
            thieves.append(socket.create_server(("127.0.0.1", cluster.plan.ports.etcd)))
        launch(component)

    monkeypatch.setattr(cluster, "launch", steal_and_launch)
    try:
        cluster.start()
        assert cluster.plan.ports.etcd != thieves[0].getsockname()[1]
        assert cluster.healthy(Component.ETCD)
    finally:
        for thief in thieves:
            thief.close()


def _listening(cluster: Cluster) -> set[str]:
    """The addresses, in the kernel's spelling, on which the cluster's processes accept connections."""
    inodes = set()
    for component in cluster.settings.components:
        for descriptor in Path(f"/proc/{cluster.pid(component)}/fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                addresses.add(fields[1].partition(":")[0])
    return addresses
