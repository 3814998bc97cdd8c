"""`kubectl gpu deckhouse check` holds files, also those written by hand, to Deckhouse's schemas and rules."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from gpu_control_plane.cli.main import commands
from gpu_control_plane.deckhouse.check import KINDS, check_files

GROUP: dict[str, Any] = {
    "apiVersion": "deckhouse.io/v1",
    "kind": "NodeGroup",
    "metadata": {"name": "w"},
    "spec": {"nodeType": "Static"},
}


def document(kind: str, spec: dict[str, Any], version: str = "deckhouse.io/v1", name: str = "w") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def group(**spec: Any) -> dict[str, Any]:
    return document("NodeGroup", {"nodeType": "Static", **spec})


def problems(*documents: dict[str, Any]) -> tuple[str, ...]:
    return check_files([("it.yml", yaml.safe_dump_all(documents))]).problems


def machine(name: str, address: str = "10.0.0.1", credentials: str = "ssh") -> dict[str, Any]:
    reference = {"apiVersion": "deckhouse.io/v1alpha2", "kind": "SSHCredentials", "name": credentials}
    spec = {"address": address, "credentialsRef": reference}
    made = document("StaticInstance", spec, "deckhouse.io/v1alpha2", name)
    made["metadata"]["labels"] = {"role": "w"}
    return made


TAINT = {"key": "gpu", "effect": "NoSchedule"}
SSH = document("SSHCredentials", {"user": "root", "privateSSHKey": "YQ=="}, "deckhouse.io/v1alpha2", "ssh")
STORAGE = "storage.deckhouse.io/v1alpha1"
CEPH = {"clusterConnectionName": "c", "reclaimPolicy": "Delete"}
CONNECTION = {"clusterID": "c", "monitors": ["m"], "userID": "u", "userKey": "k"}
MIG = {"partedConfig": "custom", "customConfigs": []}

RULES: list[tuple[list[dict[str, Any]], str]] = [
    (
        [group(nodeTemplate={"taints": [TAINT]})],
        "NodeGroup w: taint gpu is not in modules.placement.customTolerationKeys",
    ),
    ([group(nodeTemplate={"taints": [{**TAINT, "key": "dedicated"}] * 2})], "2 taints have key dedicated"),
    ([group(cri={"type": "Docker"})], "cri.type Docker is not supported any more"),
    ([group(cri={"type": "ContainerdV2", "containerd": {}})], "cri.containerd needs cri.type Containerd"),
    ([group(cri={"type": "Containerd", "containerdV2": {}})], "cri.containerdV2 needs cri.type ContainerdV2"),
    ([group(cri="Containerd")], "NodeGroup w: spec.cri: a map of names and values is needed, and this is text"),
    ([group(nodeType="CloudEphemeral")], "cloudInstances belong to nodeType CloudEphemeral"),
    ([group(nodeType="CloudPermanent", staticInstances={})], "staticInstances belong to nodeType Static"),
    ([group(disruptions={"approvalMode": "RollingUpdate"})], "approvalMode RollingUpdate works with nodeType Cloud"),
    (
        [group(kubelet={"topologyManager": {"policy": "Restricted"}, "resourceReservation": {"mode": "Off"}})],
        "kubelet.topologyManager.policy needs reserved CPUs",
    ),
    (
        [group(kubelet={"topologyManager": {"policy": "Restricted"}, "resourceReservation": {"mode": "Static"}})],
        "kubelet.topologyManager.policy needs reserved CPUs",
    ),
    ([group(gpu={"sharing": "Exclusive", "timeSlicing": {"partitionCount": 4}})], "gpu.timeSlicing belongs to"),
    (
        [group(gpu={"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 101}})],
        "spec.gpu.timeSlicing.partitionCount: this has to be at most 100.",
    ),
    (
        [group(gpu={"sharing": "Exclusive", "mig": {"partedConfig": "all-balanced"}})],
        "gpu.mig belongs to gpu.sharing MIG",
    ),
    ([group(gpu={"sharing": "MIG", "mig": MIG})], "gpu.mig.customConfigs belong to partedConfig custom"),
    ([group(gpu={"sharing": "MIG", "mig": {"partedConfig": "all-1g.141gb"}})], "spec.gpu.mig.partedConfig: "),
    ([group(nodetemplate={})], "NodeGroup w: spec: nodetemplate is not known here: did you mean nodeTemplate?"),
    ([group(), group()], "NodeGroup w is there 2 times"),
    ([SSH, machine("a"), machine("b")], "StaticInstance b: StaticInstance a has the address 10.0.0.1, too"),
    ([SSH, machine("a", credentials="other")], "StaticInstance a: there are no SSHCredentials other"),
    ([machine("a", address="host")], "StaticInstance a: spec.address: "),
    (
        [
            SSH,
            machine("a"),
            group(staticInstances={"count": 2, "labelSelector": {"matchLabels": {"role": "w"}}}),
        ],
        "staticInstances.count is 2, and 1 StaticInstances match",
    ),
    ([document("SSHCredentials", {"user": "root"}, "deckhouse.io/v1alpha2")], "privateSSHKey or sudoPasswordEncoded"),
    (
        [
            document(
                "NodeGroupConfiguration",
                {"nodeGroups": ["x"], "bundles": ["*"], "content": "true"},
                "deckhouse.io/v1alpha1",
            )
        ],
        "there is no NodeGroup x: it would run nowhere",
    ),
    (
        [document("LocalPathProvisioner", {"path": "/a", "nodeGroups": ["x"]}, "deckhouse.io/v1alpha1")],
        "there is no NodeGroup x: no volume",
    ),
    (
        [
            document("CephClusterConnection", CONNECTION, STORAGE, "other"),
            document("CephStorageClass", {**CEPH, "type": "RBD", "rbd": {"pool": "p"}}, STORAGE),
        ],
        "there is no CephClusterConnection c",
    ),
    ([document("CephStorageClass", {**CEPH, "type": "RBD", "cephFS": {"fsName": "f"}}, STORAGE)], "type RBD needs rbd"),
    ([document("ModuleConfig", {"settings": {"a": 1}}, "deckhouse.io/v1alpha1")], "settings need spec.version"),
    (
        [document("IngressNginxController", {"ingressClass": "n", "inlet": "HostPort"})],
        "inlet HostPort needs hostPort.httpPort or httpsPort",
    ),
    (
        [
            document(
                "IngressNginxController", {"ingressClass": "n", "inlet": "HostPort", "hostPort": {"httpsPort": 6443}}
            )
        ],
        "port 6443 belongs to the API server",
    ),
    (
        [
            {
                "apiVersion": "deckhouse.io/v1",
                "kind": "ClusterConfiguration",
                "clusterType": "Static",
                "podSubnetCIDR": "999.1.1.0/24",
                "serviceSubnetCIDR": "10.0.0.0/16",
                "kubernetesVersion": "1.34",
                "clusterDomain": "cluster.local",
            }
        ],
        "ClusterConfiguration: podSubnetCIDR: this should be an IPv4 network, such as 10.111.0.0/16.",
    ),
    ([machine("a", address="300.1.1.1")], "StaticInstance a: spec.address: this should be an IPv4 address"),
    (
        [
            document(
                "ModuleConfig",
                {"version": 2, "settings": {"modules": {"placement": {"customTolerationKeys": 5}}}},
                "deckhouse.io/v1alpha1",
                "global",
            )
        ],
        "ModuleConfig global: modules.placement.customTolerationKeys is a list",
    ),
    ([document("User", {"email": "a@b.c", "password": "secret"})], "User w: password is no bcrypt hash"),
]


@pytest.mark.parametrize(("documents", "sentence"), RULES, ids=[text for _, text in RULES])
def test_a_broken_rule_is_told(documents: list[dict[str, Any]], sentence: str) -> None:
    assert [problem for problem in problems(*documents) if sentence in problem], problems(*documents)


def test_a_taint_is_right_once_the_cluster_tolerates_it() -> None:
    placement = {"modules": {"placement": {"customTolerationKeys": ["gpu"]}}}
    tolerating = document("ModuleConfig", {"version": 2, "settings": placement}, "deckhouse.io/v1alpha1", "global")
    assert problems(tolerating, group(nodeTemplate={"taints": [TAINT]})) == ()


def test_the_registry_is_described_once() -> None:
    settings = {"version": 1, "settings": {"registry": {"mode": "Direct"}}}
    module = document("ModuleConfig", settings, "deckhouse.io/v1alpha1", "deckhouse")
    initial = {"apiVersion": "deckhouse.io/v1", "kind": "InitConfiguration", "deckhouse": {"imagesRepo": "r"}}
    assert problems(module, initial) == (
        "ModuleConfig deckhouse: registry is set here and in InitConfiguration: keep one of the two.",
    )


def test_every_kind_has_a_json_schema() -> None:
    for kind in KINDS.values():
        assert msgspec.json.schema(kind)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        (yaml.safe_dump(GROUP), 0, "1 document is as Deckhouse wants."),
        (yaml.safe_dump(group(cri={"type": "Docker"})), 4, "cri.type Docker is not supported any more"),
        ("apiVersion: v1\nkind: ConfigMap\n", 0, "Not checked, since this kind is not known here: "),
        ("a: [", 4, "is no YAML"),
        ("- a", 4, "a document is no object with apiVersion and kind"),
        ("kind: NodeGroup", 4, "it.yml, document 1: apiVersion and kind are missing."),
        ("# nothing", 4, "There is no document in these files."),
    ],
)
def test_the_command_tells_it_and_ends_accordingly(text: str, code: int, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "it.yml").write_text(text)
    ran = CliRunner().invoke(commands, ["deckhouse", "check", str(tmp_path / "it.yml")], standalone_mode=False)
    assert sentence in ran.output
    assert ran.return_value == code


def test_the_example_is_printed() -> None:
    shown = CliRunner().invoke(commands, ["deckhouse", "example"]).output
    assert yaml.safe_load(shown)["version"] == 1
