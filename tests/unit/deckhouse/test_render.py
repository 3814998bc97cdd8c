"""What a description becomes: every part of the example's cluster, in an order that dhctl can work through."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_control_plane.deckhouse.bootstrap_commands import bootstrap_commands
from gpu_control_plane.deckhouse.documents import to_yaml
from gpu_control_plane.deckhouse.kinds import Document
from gpu_control_plane.deckhouse.render import Rendering
from unit.deckhouse.descriptions import ROOT, described, example, rendered

HERE = Path("/home/me/a cluster")
"""Where the description lies."""


def named(made: Rendering, kind: str) -> dict[str, Any]:
    return {
        document.to_builtins()["metadata"]["name"]: document.to_builtins()
        for document in made.documents
        if document.kind == kind
    }


def position(documents: tuple[Document, ...], title: str) -> int:
    return [document.title for document in documents].index(title)


def test_the_files_of_the_example_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, "tools/deckhouse_example.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_every_part_of_the_cluster_is_there() -> None:
    made = rendered()
    assert Counter(document.kind for document in made.documents) == {
        "ClusterConfiguration": 1,
        "InitConfiguration": 1,
        "StaticClusterConfiguration": 1,
        "ModuleConfig": 15,
        "NodeGroup": 5,
        "NodeGroupConfiguration": 3,
        "SSHCredentials": 1,
        "StaticInstance": 15,
        "ModuleSource": 1,
        "ModuleUpdatePolicy": 1,
        "GPUPool": 2,
        "CephClusterConnection": 1,
        "CephClusterAuthentication": 1,
        "CephStorageClass": 2,
        "LocalPathProvisioner": 1,
        "MetalLoadBalancerClass": 2,
        "IngressNginxController": 2,
        "ClusterAuthorizationRule": 1,
        "User": 1,
        "Secret": 1,
        "ClusterIssuer": 1,
    }


def test_every_machine_belongs_to_its_group() -> None:
    groups = named(rendered(), "NodeGroup")
    counts = {name: group["spec"]["staticInstances"]["count"] for name, group in groups.items()}
    assert counts == {"master": 2, "w-std": 6, "w-db": 3, "w-gpu": 2, "w-gpu-3060": 2}


def test_one_master_needs_no_group_of_ours() -> None:
    made = rendered({"masters.hosts": ["192.168.3.51"]})
    assert "master" not in named(made, "NodeGroup")
    assert not [name for name in named(made, "StaticInstance") if name.startswith("master")]


def test_dhctl_is_sent_to_the_first_master_only() -> None:
    addresses = {each["spec"]["address"] for each in named(rendered(), "StaticInstance").values()}
    bootstrap = next(each.text for each in bootstrap_commands(described(), HERE) if "dhctl bootstrap" in each.text)
    assert "--ssh-host=192.168.3.51 " in bootstrap
    assert "192.168.3.51" not in addresses


def test_taints_that_deckhouse_does_not_know_are_tolerated_by_its_pods() -> None:
    settings = named(rendered(), "ModuleConfig")["global"]["spec"]["settings"]
    assert settings["modules"]["placement"]["customTolerationKeys"] == ["workload"]


def test_a_module_comes_after_what_it_needs() -> None:
    made = rendered()
    assert position(made.documents, "ModuleConfig snapshot-controller") < position(
        made.documents, "ModuleConfig csi-ceph"
    )
    assert position(made.documents, "ModuleSource gpu-control-plane") < position(
        made.documents, "ModuleConfig gpu-control-plane"
    )


def test_settings_of_a_person_go_before_ours() -> None:
    own = {"version": 2, "settings": {"modules": {"publicDomainTemplate": "%s.other.example.com"}}}
    settings = named(rendered({"modules.global": own}), "ModuleConfig")["global"]["spec"]["settings"]
    assert settings["modules"]["publicDomainTemplate"] == "%s.other.example.com"
    assert settings["modules"]["ingressClass"] == "nginx"


def test_a_small_cluster_has_no_more_than_it_describes() -> None:
    keep = ("version", "deckhouse", "kubernetes", "network", "ssh", "masters")
    made = rendered({**dict.fromkeys(set(example()) - set(keep)), "masters.hosts": ["192.168.3.51"]})
    assert {document.kind for document in made.documents} == {
        "ClusterConfiguration",
        "InitConfiguration",
        "StaticClusterConfiguration",
        "ModuleConfig",
        "SSHCredentials",
    }
    assert not {"csi-ceph", "metallb", "gpu-control-plane"} & set(named(made, "ModuleConfig"))


def test_deckhouse_can_serve_cards_by_itself() -> None:
    slicing = {"setup": "Native", "native": {"sharing": "TimeSlicing", "partitionCount": 8}}
    made = rendered(
        {"nodeGroups.2.gpu": slicing, "gpuControlPlane.pools": [{"name": "small", "nodeGroups": ["w-gpu-3060"]}]}
    )
    group = named(made, "NodeGroup")["w-gpu"]["spec"]
    assert group["gpu"] == {"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 8}}
    # Our agent leaves its cards alone.
    assert group["nodeTemplate"]["labels"]["gpu.deckhouse.io/enabled"] == "false"
    scripts = named(made, "NodeGroupConfiguration")
    # The driver is there before Deckhouse looks for it, and nobody else touches containerd.
    assert scripts["install-cuda.sh"]["spec"]["weight"] == 5
    assert scripts["containerd-additional-config.sh"]["spec"]["nodeGroups"] == ["w-gpu-3060"]


@pytest.mark.parametrize(
    ("settings", "own", "labels"),
    [
        ({}, {}, {"w-gpu": ("gpu.deckhouse.io/enabled", "false"), "w-gpu-3060": None}),
        ({"labelKey": "x.io/m"}, {}, {"w-gpu": ("x.io/m", "false"), "w-gpu-3060": None}),
        (
            {"labelKey": "x.io/m", "enabledByDefault": False},
            {},
            {"w-gpu": ("x.io/m", "false"), "w-gpu-3060": ("x.io/m", "true")},
        ),
        ({"enabledByDefault": False}, {"setup": "None"}, {"w-gpu-3060": ("gpu.deckhouse.io/enabled", "true")}),
    ],
    ids=["usual", "another-label", "opt-in", "opt-in-without-scripts"],
)
def test_nodes_say_whose_their_cards_are_as_the_module_is_set(
    settings: dict[str, Any], own: dict[str, Any], labels: dict[str, tuple[str, str] | None]
) -> None:
    """One server for each card, and one at least: `Native` cards are not our agent's, and those of pools are."""
    made = rendered(
        {
            "nodeGroups.2.gpu": {"setup": "Native"},
            "nodeGroups.3.gpu": own,
            "gpuControlPlane.settings.managedNodes": settings,
            "gpuControlPlane.pools": [{"name": "small", "nodeGroups": ["w-gpu-3060"]}],
        }
    )
    described_ones = {"workload", "card"}
    groups = named(made, "NodeGroup")
    for name, label in labels.items():
        given = groups[name]["spec"]["nodeTemplate"]["labels"].items()
        assert [each for each in given if each[0] not in described_ones] == ([label] if label else []), name
    assert "labels" not in groups["w-std"]["spec"].get("nodeTemplate", {})


@pytest.mark.parametrize(
    ("native", "mig"),
    [
        ({"sharing": "MIG"}, {"partedConfig": "all-1g.5gb"}),
        ({"sharing": "MIG", "partedConfig": "all-balanced"}, {"partedConfig": "all-balanced"}),
        (
            {"sharing": "MIG", "customConfigs": [{"index": 0, "slices": [{"profile": "1g.141gb", "count": 1}]}]},
            {
                "partedConfig": "custom",
                "customConfigs": [{"index": 0, "slices": [{"profile": "1g.141gb", "count": 1}]}],
            },
        ),
    ],
)
def test_deckhouse_can_cut_cards_by_itself(native: dict[str, Any], mig: dict[str, Any]) -> None:
    made = rendered({"nodeGroups.2.gpu": {"setup": "Native", "native": native}, "gpuControlPlane": None})
    assert named(made, "NodeGroup")["w-gpu"]["spec"]["gpu"] == {"sharing": "MIG", "mig": mig}


def test_groups_with_different_drivers_and_runtimes_get_scripts_of_their_own() -> None:
    made = rendered({"nodeGroups.3.containerd": "V2", "nodeGroups.3.gpu.driver": "nvidia-driver-550-server"})
    groups = {name: each["spec"]["nodeGroups"] for name, each in named(made, "NodeGroupConfiguration").items()}
    assert groups == {
        "install-cuda.sh": ["w-gpu"],
        "install-cuda-w-gpu-3060.sh": ["w-gpu-3060"],
        "containerd-additional-config.sh": ["w-gpu"],
        "containerd-v2-additional-config.sh": ["w-gpu-3060"],
        "add-gitlab-registry-cert.sh": ["*"],
    }


def test_ingress_controllers_tolerate_the_taints_of_their_nodes() -> None:
    made = rendered({"ingress.0.nodeGroup": "w-db"})
    tolerated = [{"key": "dedicated.deckhouse.io", "operator": "Equal", "value": "w-db", "effect": "NoSchedule"}]
    assert named(made, "IngressNginxController")["external"]["spec"]["tolerations"] == tolerated
    assert named(made, "MetalLoadBalancerClass")["ingress-external"]["spec"]["tolerations"] == tolerated


def test_the_files_are_yaml_and_say_the_same() -> None:
    made = rendered()
    read = [content for content in yaml.safe_load_all(made.config_yml() + "---\n" + made.resources_yml()) if content]
    assert read == [document.to_builtins() for document in made.documents if not document.is_secret]


@pytest.mark.parametrize(
    ("changes", "login"),
    [
        ({}, 'base64 -d <<< "$DECKHOUSE_LICENSE_KEY" | docker login'),
        ({"deckhouse.licenseEncoding": "Plain"}, 'printf %s "$DECKHOUSE_LICENSE_KEY" | docker login'),
        ({"deckhouse.license": "file:my key"}, "base64 -d '/home/me/a cluster/my key' | docker login"),
        ({"deckhouse.license": "file:~/my key"}, "base64 -d \"$HOME\"/'my key' | docker login"),
        ({"deckhouse.license": "file:/etc/registry/key"}, "base64 -d /etc/registry/key | docker login"),
        ({"deckhouse.license": "ask"}, "read -rsp 'Licence key: ' key; base64 -d <<< \"$key\" | docker login"),
    ],
)
def test_the_licence_reaches_the_registry_without_being_shown(changes: dict[str, Any], login: str) -> None:
    assert next(bootstrap_commands(described(changes), HERE)).text.startswith(login)


@pytest.mark.parametrize(
    ("key", "mounted", "used"),
    [
        ("file:~/.ssh/id_ed25519", '-v "$HOME/.ssh/:/tmp/.ssh/"', "/tmp/.ssh/id_ed25519"),  # noqa: S108
        ("file:~/.ssh/clusters/it's", '-v "$HOME/.ssh/:/tmp/.ssh/"', "'/tmp/.ssh/clusters/it'\"'\"'s'"),
        ("file:keys/id", "-v '/home/me/a cluster/keys/id':/tmp/ssh-key:ro", "/tmp/ssh-key"),  # noqa: S108
        ("env:KEY", '-v "$PWD/dhctl-ssh-key:/tmp/ssh-key:ro"', "/tmp/ssh-key"),  # noqa: S108
    ],
)
def test_dhctl_finds_the_key_wherever_it_is(key: str, mounted: str, used: str) -> None:
    text = {each.title.split()[0]: each.text for each in bootstrap_commands(described({"ssh.privateKey": key}), HERE)}
    assert f"  {mounted} \\\n" in text["Start"]
    assert f"--ssh-agent-private-keys={used} " in text["In"]
    assert ("Write" in text, "dhctl-ssh-key" in text["Then"]) == (key.startswith("env:"), key.startswith("env:"))


def test_a_mirror_in_a_folder_of_a_registry_is_logged_in_to_by_its_host() -> None:
    changes = {"deckhouse.registry": "mirror.example.com:5000/platform"}
    text = " ".join(each.text for each in bootstrap_commands(described(changes), HERE))
    assert "--password-stdin mirror.example.com:5000\n" in text.replace(" docker run", "\ndocker run")
    assert "mirror.example.com:5000/platform/deckhouse/ee/install:stable bash" in text


def test_commands_are_what_a_shell_takes(tmp_path: Path) -> None:
    awkward = {"ssh.privateKey": 'file:it\'s "a" $key', "deckhouse.license": "file:~/o'clock $(id)"}
    for each in bootstrap_commands(described(awkward), HERE):
        (tmp_path / "command.sh").write_text(each.text)
        shellcheck = Path(sys.executable).with_name("shellcheck")
        ran = subprocess.run(
            [shellcheck, "--shell=bash", "--severity=warning", tmp_path / "command.sh"],
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout.decode()


def test_the_free_edition_needs_no_login() -> None:
    changes = {"deckhouse.edition": "CE", "deckhouse.license": None}
    assert "docker login" not in " ".join(each.text for each in bootstrap_commands(described(changes), HERE))
    assert "InitConfiguration" not in {document.kind for document in rendered(changes).secrets}


def test_dhctl_finds_a_document_in_every_part_of_a_file() -> None:
    """It splits files wherever a line begins with `---`, and takes a part without a kind for an error. Ends of lines
    before that are lost."""
    made = rendered()
    text = f"{made.config_yml()}---\n{made.resources_yml()}"
    parts = [yaml.safe_load(part) for part in re.split(r"(?:^|\s*\n)---\s*", text.strip())]
    expected = [yaml.safe_load(to_yaml(each.to_builtins()).strip()) for each in made.documents if not each.is_secret]
    assert parts == expected
