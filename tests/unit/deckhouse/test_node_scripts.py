"""The scripts that Deckhouse runs on nodes: clean, and run twice they change nothing the second time."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.deckhouse.kinds.nodes import NodeGroupConfiguration
from unit.deckhouse.descriptions import rendered
from unit.deckhouse.node_root import NodeRoot, make_root, skip_without_namespaces

CLUSTERS: dict[str, dict[str, Any]] = {
    "containerd 1": {},
    "containerd 2": {"kubernetes.containerd": "V2"},
    "default runtime": {"nodeGroups.2.gpu.defaultRuntime": True, "nodeGroups.3.gpu.defaultRuntime": True},
    "dnf": {
        f"nodeGroups.{number}.{key}": value
        for number in (2, 3)
        for key, value in {"bundle": "centos", "gpu.driver": "nvidia-open"}.items()
    },
    "native": {
        "gpuControlPlane": None,
        "nodeGroups.2.gpu": {"setup": "Native", "packages": ["nvidia-fabricmanager-575"]},
        "nodeGroups.3.gpu": {"setup": "Native"},
    },
}


def scripts(cluster: str) -> list[NodeGroupConfiguration]:
    """The scripts of a GPU node in the order in which Deckhouse runs them."""
    made = rendered(CLUSTERS[cluster]).documents
    found = [each for each in made if isinstance(each, NodeGroupConfiguration)]
    mine = [each for each in found if {"*", "w-gpu"} & set(each.spec.node_groups)]
    return sorted(mine, key=lambda each: (each.spec.weight or 100, each.metadata.name))


def content(cluster: str, name: str) -> str:
    return next(each.spec.content for each in scripts(cluster) if each.metadata.name == name)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine to copy: programs are gathered once."""
    skip_without_namespaces()
    return make_root(tmp_path_factory.mktemp("machine") / "root").root


@pytest.fixture
def node(machine: Path, tmp_path: Path) -> NodeRoot:
    shutil.copytree(machine, tmp_path / "root")
    root = NodeRoot(tmp_path / "root")
    root.write("/loadable")
    return root


def run_all(node: NodeRoot, cluster: str) -> list[str]:
    said: list[str] = []
    for script in scripts(cluster):
        ran = node.run(script.spec.content)
        assert ran.returncode == 0, f"{script.metadata.name}: {ran.stderr}"
        said += node.said
    return said


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_scripts_are_clean(cluster: str, tmp_path: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for script in scripts(cluster):
        (tmp_path / script.metadata.name).write_text(script.spec.content)
    checked = subprocess.run(
        [shellcheck, "--shell=bash", "--severity=style", *sorted(tmp_path.glob("*.sh"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_nothing_is_left_for_deckhouses_templates_to_replace(cluster: str) -> None:
    for script in scripts(cluster):
        assert "{{" not in script.spec.content
        assert "@" not in script.spec.content.replace("[@]", "")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_second_run_changes_nothing(cluster: str, node: NodeRoot) -> None:
    assert run_all(node, cluster)
    before = node.snapshot()
    assert run_all(node, cluster) == []
    assert node.snapshot() == before


def test_a_node_gets_driver_toolkit_and_certificate(node: NodeRoot) -> None:
    said = run_all(node, "containerd 1")
    assert "apt install -y linux-headers-6.8.0-31-generic nvidia-driver-575-server nvidia-container-toolkit" in said
    assert node.read("/etc/apt/sources.list.d/nvidia-container-toolkit.list") == (
        "deb [signed-by=/etc/apt/keyrings/nvidia-container-toolkit.asc] "
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n"
    )
    settings = tomllib.loads(node.read("/etc/nvidia-container-runtime/config.toml"))
    assert settings["nvidia-container-runtime"]["log-level"] == "error"
    assert settings["accept-nvidia-visible-devices-envvar-when-unprivileged"] is False
    assert "BEGIN CERTIFICATE" in node.read("/usr/local/share/ca-certificates/gitlab.crt")
    assert "update-ca-certificates" in said
    assert said.count("flag: containerd-need-restart") == 2


@pytest.mark.parametrize(
    ("kind", "folder", "key", "enabled"),
    [
        (("9.4", "x86_64"), "rhel9/x86_64", "D42D0685", True),
        (("8.10", "aarch64"), "rhel8/sbsa", "D42D0685", True),
        (("10.0", "aarch64"), "rhel10/sbsa", "CDF6BA43", False),
    ],
)
def test_drivers_come_from_the_repository_of_release_and_processor(
    kind: tuple[str, str], folder: str, key: str, enabled: bool, node: NodeRoot
) -> None:
    node.write("/etc/os-release", f'ID=rocky\nVERSION_ID="{kind[0]}"\n')
    node.write("/processor", f"{kind[1]}\n")
    said = run_all(node, "dnf")
    cuda = f"https://developer.download.nvidia.com/compute/cuda/repos/{folder}"
    repository = node.read("/etc/yum.repos.d/nvidia-cuda.repo").splitlines()
    assert repository[2:4] == [f"baseurl={cuda}", f"gpgkey={cuda}/{key}.pub"]
    assert ("dnf module enable -y nvidia-driver:open-dkms" in said) == enabled


def test_drivers_of_another_stream_are_found(node: NodeRoot) -> None:
    gpu = {"driver": "cuda-drivers", "driverStream": "580-dkms"}
    made = rendered({"nodeGroups.2.bundle": "centos", "nodeGroups.2.gpu": gpu}).documents
    script = next(each for each in made if each.title == "NodeGroupConfiguration install-cuda.sh")
    assert isinstance(script, NodeGroupConfiguration)
    assert node.run(script.spec.content).returncode == 0
    assert "dnf module enable -y nvidia-driver:580-dkms" in node.said


@pytest.mark.parametrize(
    ("cluster", "folder", "plugin"),
    [
        ("containerd 1", "conf.d", "io.containerd.grpc.v1.cri"),
        ("containerd 2", "conf2.d", "io.containerd.cri.v1.runtime"),
        ("default runtime", "conf.d", "io.containerd.grpc.v1.cri"),
    ],
)
def test_containerd_knows_the_runtime_and_cdi(cluster: str, folder: str, plugin: str, node: NodeRoot) -> None:
    run_all(node, cluster)
    made = tomllib.loads(node.read(f"/etc/containerd/{folder}/nvidia_gpu.toml"))
    cri = made["plugins"][plugin]
    assert made["version"] == (3 if "2" in folder else 2)
    assert (cri["enable_cdi"], cri["cdi_spec_dirs"]) == (True, ["/etc/cdi", "/var/run/cdi"])
    assert cri["containerd"]["runtimes"]["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "privileged_without_host_devices": False,
        "options": {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": True},
    }
    assert cri["containerd"].get("default_runtime_name") == ("nvidia" if cluster == "default runtime" else None)


def test_the_runtime_uses_the_nodes_kind_of_cgroups(node: NodeRoot) -> None:
    node.write("/etc/containerd/deckhouse.toml", "  SystemdCgroup = false\n")
    run_all(node, "containerd 1")
    assert "SystemdCgroup = false" in node.read("/etc/containerd/conf.d/nvidia_gpu.toml")


def test_containerd_is_left_alone_while_the_toolkit_is_missing(node: NodeRoot) -> None:
    ran = node.run(content("containerd 1", "containerd-additional-config.sh"))
    assert ran.returncode == 1
    assert node.said[0].startswith("error: There is no /usr/bin/nvidia-container-runtime")
    assert not (node.root / "etc/containerd").exists()


def test_a_driver_that_loads_needs_no_reboot(node: NodeRoot) -> None:
    assert not {"flag: reboot", "approval"} & set(run_all(node, "containerd 1"))


def test_a_driver_that_cannot_be_loaded_now_is_loaded_by_one_reboot(node: NodeRoot) -> None:
    (node.root / "loadable").unlink()
    assert run_all(node, "containerd 1").count("flag: reboot") == 1
    later = run_all(node, "containerd 1")
    assert "flag: reboot" not in later
    assert any(
        line.startswith("error: The driver nvidia-driver-575-server is installed and not loaded") for line in later
    )


def test_another_driver_waits_for_approval_before_it_touches_the_node(node: NodeRoot) -> None:
    run_all(node, "containerd 1")
    (node.root / "var/lib/packages/nvidia-driver-575-server").unlink()
    said = run_all(node, "containerd 1")
    assert said.index("approval") < said.index("apt install -y nvidia-driver-575-server")
    assert "flag: reboot" in said


def test_a_run_that_was_cut_short_is_finished_by_the_next(node: NodeRoot) -> None:
    run_all(node, "containerd 1")
    shutil.rmtree(node.root / "proc")
    node.write("/var/lib/bashible/nvidia-driver-pending")
    assert "modprobe nvidia" in run_all(node, "containerd 1")
    assert not (node.root / "var/lib/bashible/nvidia-driver-pending").exists()


def test_package_lists_are_read_again_for_a_new_repository(node: NodeRoot) -> None:
    said = run_all(node, "containerd 1")
    assert said.index("apt update") < next(number for number, line in enumerate(said) if "apt install" in line)
