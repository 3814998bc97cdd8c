"""What is known about real nodes before one runs: addresses that never meet, readable files, clear sentences."""

import ipaddress
import itertools
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.kubeconfig import write_kubeconfig
from gpu_control_plane.local.node import network, requirements
from gpu_control_plane.local.node.configuration import (
    Layout,
    containerd_config,
    kubelet_config,
    pod_network,
    proxy_config,
)
from gpu_control_plane.local.node.network import MOST_NODES, Network, leased_network

LAYOUT = Layout(Path("/clusters/gpu/nodes/node-a"))
ATTACHMENT = Network(3).attachment(0)
PAIR = KeyPair(Path("/certificate"), Path("/key"))


def test_no_two_nodes_of_a_machine_share_anything() -> None:
    every = [Network(number).attachment(index) for number in range(64) for index in range(MOST_NODES)]
    for field in ("interface", "address", "pods"):
        assert len({getattr(attachment, field) for attachment in every}) == len(every)
    assert all(len(attachment.interface) <= 15 for attachment in every)


def test_no_two_clusters_share_an_address() -> None:
    ranges = [ipaddress.ip_network(each) for number in range(64) for each in Network(number).ranges.all]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))


def test_a_clusters_ranges_hold_its_nodes_and_their_pods() -> None:
    for index in range(MOST_NODES):
        attachment = Network(63).attachment(index)
        nodes, pods = (ipaddress.ip_network(each) for each in attachment.ranges.all[:2])
        assert ipaddress.ip_address(attachment.address) in nodes
        assert isinstance(pods, ipaddress.IPv4Network)
        assert ipaddress.IPv4Network(attachment.pods).subnet_of(pods)


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(network, "_LEASES", tmp_path / "leases")
    return tmp_path / "leases"


def test_clusters_at_the_same_time_get_different_networks(leases: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with leased_network(folders[0]) as first, leased_network(folders[1]) as second:
        assert first.number != second.number
    assert list(leases.iterdir()) == []


def test_a_cluster_gets_its_network_again_and_no_other(leases: Path, tmp_path: Path) -> None:
    (tmp_path / "network").write_text("7")
    with leased_network(tmp_path) as again:
        assert again == Network(7)
        with (
            pytest.raises(network.AddressesTaken, match=r"198\.18\.7\.0/24.*Stop the other one"),
            leased_network(tmp_path),
        ):
            pass


def test_containerd_reads_drop_ins_and_cdi_files() -> None:
    config = tomllib.loads(containerd_config(LAYOUT, Path("/cni"), Path("/usr/sbin/runc")))
    assert config["imports"] == ["/clusters/gpu/nodes/node-a/containerd/conf.d/*.toml"]
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["cdi_spec_dirs"] == ["/run/cdi"]
    assert runtime["cni"]["bin_dirs"] == ["/cni"]


def test_a_kubelet_keeps_to_its_own_control_group_and_evicts_nothing() -> None:
    text = kubelet_config(LAYOUT, ATTACHMENT, cgroup="g", authority=Path("/ca"), serving=PAIR, names=Path("/names"))
    config = json.loads(text)
    assert config["cgroupRoot"] == "/g"
    assert config["address"] == ATTACHMENT.address
    assert set(config["evictionHard"].values()) == {"0%"}


def test_pods_get_addresses_of_their_node_only() -> None:
    [plugin] = json.loads(pod_network(LAYOUT, ATTACHMENT))["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": ATTACHMENT.pods}]]
    assert plugin["ipMasq"] is False


def test_kube_proxy_leaves_the_kernels_settings_alone() -> None:
    config = json.loads(proxy_config(LAYOUT, ATTACHMENT, name="node-a"))
    assert set(config["conntrack"].values()) == {0, "0s"}
    assert config["mode"] == "nftables"


@pytest.mark.parametrize("name", ["n", "1", "null", "node-a"])
def test_a_kubeconfig_keeps_names_that_yaml_would_read_as_something_else(tmp_path: Path, name: str) -> None:
    pair = KeyPair(tmp_path / "certificate", tmp_path / "key")
    for path in (pair.certificate, pair.key):
        path.write_text("x")
    write_kubeconfig(tmp_path / "config", name=name, server="https://x", authority=pair.certificate, client=pair)
    assert yaml.safe_load((tmp_path / "config").read_text())["current-context"] == name


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine with root and nothing else; programs are looked for in the returned folder."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CNI_PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "_PROGRAM_FOLDERS", ())
    monkeypatch.setattr(requirements, "_PLUGIN_FOLDERS", ())
    return tmp_path


def test_what_is_missing_is_named_as_packages(bare_machine: Path) -> None:
    packages = "runc containernetworking-plugins busybox-static"
    with pytest.raises(requirements.NodeImpossible, match=rf"needs {packages}.*`apt-get install {packages}`"):
        requirements.system_programs()
    packages += " nftables"
    with pytest.raises(requirements.NodeImpossible, match=rf"needs {packages}, as"):
        requirements.system_programs(services=True)
    script = (Path(__file__).parents[3] / "tools" / "system-packages").read_text()
    assert all(package in script for package in packages.split())


def test_programs_are_found_where_the_environment_says(bare_machine: Path) -> None:
    for program in ("runc", "busybox", *requirements.PLUGINS):
        _write_program(bare_machine / program, b"static")
    found = requirements.system_programs()
    assert (found.runc, found.plugins) == (bare_machine / "runc", bare_machine)


def test_a_busybox_that_needs_libraries_will_not_do(bare_machine: Path) -> None:
    for program in ("runc", *requirements.PLUGINS):
        _write_program(bare_machine / program, b"static")
    _write_program(bare_machine / "busybox", b"\x7fELF /lib64/ld-linux-x86-64.so.2")
    with pytest.raises(requirements.NodeImpossible, match="needs busybox-static, as"):
        requirements.system_programs()


def test_without_root_there_is_no_real_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(requirements.NodeImpossible, match="needs root"):
        requirements.system_programs()


def _write_program(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)
