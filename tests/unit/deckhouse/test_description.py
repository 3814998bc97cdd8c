"""A wrong description is refused with a sentence: what, where, what to do."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpu_control_plane.cli.main import commands
from gpu_control_plane.deckhouse.description import read_description
from gpu_control_plane.deckhouse.errors import BadDescription
from unit.deckhouse.descriptions import changed, rendered

WRONG_SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"nodeGroups.0.conatinerd": "V2"}, "nodeGroups[0]: conatinerd is not known here: did you mean containerd?"),
    ({"kubernetes.podSubnet": None}, "kubernetes: podSubnet is missing."),
    ({"kubernetes.podSubnet": "10.111.0.1/16"}, "kubernetes.podSubnet: '10.111.0.1/16' is no IPv4 network"),
    ({"kubernetes.version": "1.31"}, "kubernetes.version: '1.31' is not known here: use Automatic, 1.32"),
    ({"masters.hosts": ["192.168.3.300"]}, "masters.hosts[0]: '192.168.3.300' is no address and no range"),
    ({"masters.hosts": ["192.168.3.53-192.168.3.51"]}, "masters.hosts[0]: '192.168.3.53-192.168.3.51' must go up"),
    ({"masters.hosts": [7]}, "masters.hosts[0]: text is needed here, such as 192.168.3.61."),
    ({"nodeGroups.0.name": "W_STD"}, "nodeGroups[0].name: "),
    ({"nodeGroups.2.taints.0.effect": "Never"}, "nodeGroups[2].taints[0].effect: 'Never' is not known here"),
    ({"nodeGroups.2.gpu.driver": "nvidia; rm -rf /"}, "nodeGroups[2].gpu.driver: "),
    ({"storage.ceph.clusterID": "ceph"}, "storage.ceph.clusterID: "),
    ({"registryCertificates.0.certificate": "gitlab.pem"}, "registryCertificates[0].certificate: write file:PATH"),
    ({"version": 2}, "version: 2 is not known here: use 1."),
    (
        {"kubernetes.version": 1.34},
        "kubernetes.version: text is needed, and this is a number: put it in quotes, such as '1",
    ),
    ({"kubernetes.podSubnetNodePrefix": 40}, "kubernetes.podSubnetNodePrefix: this has to be at most 28."),
    (
        {"nodeGroups.0.labels": {"rack": 7}},
        "nodeGroups[0].labels[...]: text is needed, and this is a whole number: put",
    ),
    ({"nodeGroups.0.hosts": "192.168.3.61"}, "nodeGroups[0].hosts: a list is needed, and this is text: write [ ]"),
    ({"nodeGroups.0.name": "w" * 43}, "nodeGroups[0].name: at most 42 characters are allowed."),
    ({"modules.console": []}, "modules[...]: a map of names and values is needed, and this is a list"),
    ({"masters.hosts": []}, "masters.hosts: this must not be empty."),
    ({"storage.ceph.monitors": ["192.168.3.300:6789"]}, "storage.ceph.monitors[0]: this should be address and port"),
    ({"deckhouse.registry": "https://registry.example.com"}, "deckhouse.registry: this should be a host"),
    ({"deckhouse.registry": "a; rm -rf /"}, "deckhouse.registry: this should be a host"),
    (
        {"gpuControlPlane.source.repo": "https://registry.example.com/modules"},
        "gpuControlPlane.source.repo: this should",
    ),
    ({"gpuControlPlane.source.repo": "registry.example.com/my modules"}, "gpuControlPlane.source.repo: this should be"),
    ({"ssh.user": "root; id"}, "ssh.user: this should be the name of an account"),
]

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    ({"deckhouse.license": None}, "deckhouse.license: edition EE needs a licence key"),
    ({"ssh.privateKey": None, "ssh.sudoPassword": None}, "ssh: Deckhouse needs privateKey or sudoPassword"),
    ({"masters.hosts": ["192.168.3.51-192.168.3.52"]}, "masters.hosts: 2 masters cannot outvote each other"),
    ({"modules.operator-trivy": {"settings": {"severities": []}}}, "modules.operator-trivy.version is missing"),
    ({"nodeGroups.1.hosts": ["192.168.3.66"]}, "nodeGroups w-db: 192.168.3.66 is given twice"),
    ({"nodeGroups.0.hosts": ["192.168.3.51"]}, "nodeGroups w-std: 192.168.3.51 is given twice (masters, "),
    ({"nodeGroups.0.hosts": ["10.0.0.9"]}, "nodeGroups w-std: 10.0.0.9 is in none of network.nodeSubnets"),
    ({"kubernetes.podSubnet": "10.111.0.0/21"}, "kubernetes.podSubnet: 10.111.0.0/21 has no /24 for each of 16 nodes"),
    ({"kubernetes.podSubnetNodePrefix": 16, "kubernetes.podSubnet": "10.111.0.0/20"}, "is larger than the whole"),
    ({"kubernetes.serviceSubnet": "10.111.4.0/24"}, "serviceSubnetCIDR 10.111.4.0/24 overlaps podSubnetCIDR"),
    ({"network.nodeSubnets": ["192.168.0.0/16", "10.111.0.0/24"]}, "overlaps podSubnetCIDR 10.111.0.0/16"),
    ({"network.publicDomainTemplate": "k8s.example.com"}, "needs exactly one %s"),
    ({"network.publicDomainTemplate": "%s.%s.example.com"}, "needs exactly one %s"),
    ({"network.publicDomainTemplate": "%s.K8S.example.com"}, "needs exactly one %s"),
    ({"network.publicDomainTemplate": "%s.cluster.local"}, "publicDomainTemplate lies in clusterDomain"),
    ({"nodeGroups.1.name": "w-std"}, "nodeGroups: w-std is described 2 times"),
    ({"nodeGroups.1.name": "master"}, "nodeGroups: master is the group of the masters"),
    ({"nodeGroups.2.bundle": "astra"}, "nodeGroups w-gpu: gpu.setup: NVIDIA has no packages for astra"),
    ({"nodeGroups.2.bundle": "centos", "nodeGroups.2.gpu": {}}, "gpu.driver is missing: name the package that has the"),
    ({"nodeGroups.2.bundle": "debian", "nodeGroups.2.gpu": {"setup": "Native"}}, "w-gpu: gpu.driver is missing"),
    ({"nodeGroups.0.labels": {"a rack": "1"}}, "nodeGroups w-std: labels: 'a rack' is no name of a label"),
    ({"nodeGroups.0.labels": {"rack": "no. 1"}}, "nodeGroups w-std: labels rack: 'no. 1' is no value of a label"),
    ({"nodeGroups.2.taints.0.value": "m l"}, "nodeGroups w-gpu: taint workload: 'm l' is no value of a taint"),
    ({"ssh.privateKey": "ask"}, "ssh.privateKey: a key has several lines, and ask takes one"),
    ({"certificateAuthority.key": "ask"}, "certificateAuthority.key: a key has several lines, and ask takes one"),
    ({"modules.csi-ceph": {"enabled": False}}, "modules.csi-ceph: storage.ceph needs it"),
    (
        {"ingress.0.addresses": ["10.111.0.9"]},
        "ingress external: 10.111.0.9 lies in kubernetes.podSubnet 10.111.0.0/16",
    ),
    (
        {"access.users.1": {"name": "eve", "email": "admin@example.com", "password": "ask"}},
        "access.users: 2 users have the email admin@example.com",
    ),
    ({"nodeGroups.2.gpu.setup": "Native", "deckhouse.edition": "SE"}, "Native needs edition EE, and this is SE"),
    ({"nodeGroups.2.gpu": {"setup": "None", "driver": "foo"}}, "w-gpu: gpu.driver has an effect with our scripts only"),
    (
        {"nodeGroups.2.gpu": {"setup": "None", "packages": ["foo"]}},
        "w-gpu: gpu.packages has an effect with our scripts",
    ),
    ({"nodeGroups.2.gpu": {"setup": "None", "driverStream": "580"}}, "w-gpu: gpu.driverStream has an effect with our"),
    (
        {"nodeGroups.2.gpu": {"setup": "None", "toolkitRepository": "https://mirror.example.com/toolkit"}},
        "w-gpu: gpu.toolkitRepository has an effect with our scripts only, and this is setup: None",
    ),
    ({"nodeGroups.2.gpu": {"setup": "None", "defaultRuntime": True}}, "defaultRuntime has an effect with our scripts"),
    ({"nodeGroups.2.gpu": {"setup": "Native", "defaultRuntime": True}}, "our scripts only, and this is setup: Native"),
    ({"nodeGroups.2.gpu.driverStream": "580-open"}, "gpu.driverStream: packages of ubuntu-lts are in no streams"),
    ({"nodeGroups.2.gpu.native": {}}, "gpu.native has an effect with setup: Native only"),
    (
        {"nodeGroups.2.gpu": {"setup": "Native", "native": {"sharing": "TimeSlicing"}}},
        "partitionCount belongs to sharing: TimeSlicing, and that needs it",
    ),
    (
        {"nodeGroups.2.gpu": {"setup": "Native", "native": {"partedConfig": "all-balanced"}}},
        "partedConfig and customConfigs belong to sharing: MIG",
    ),
    (
        {"nodeGroups.2.taints.1": {"key": "workload", "value": "x", "effect": "NoSchedule"}},
        "2 taints have key workload",
    ),
    ({"storage.local.0.nodeGroups": ["w-sql"]}, "storage.local zdata-relational: there is no node group w-sql"),
    ({"storage.ceph.storageClasses.0.fileSystem": "cephfs"}, "ceph-rbd: give either pool (RBD) or fileSystem (CephFS)"),
    ({"storage.ceph.storageClasses.1.name": "ceph-rbd"}, "storage: 2 storage classes are called ceph-rbd"),
    ({"storage.defaultClass": "fast"}, "storage.defaultClass: there is no class fast: use ceph-rbd, ceph-fs"),
    (
        {"ingress.0.addresses": ["192.168.3.60-192.168.3.61"]},
        "ingress external: 192.168.3.61 is the address of a machine",
    ),
    (
        {"ingress.1.addresses": ["192.168.3.199-192.168.3.201"]},
        "ingress internal: 192.168.3.199-192.168.3.201 overlaps",
    ),
    ({"ingress.1.ingressClass": "nginx"}, "ingress: 2 controllers have the class nginx: change one."),
    ({"ingress.0.nodeGroup": "frontend"}, "ingress external: there is no node group frontend"),
    ({"ingress": []}, "access.publishAPI: the API is published by an ingress controller"),
    ({"access.publishAPI.ingressClass": "other"}, "access.publishAPI: no ingress has the class other"),
    ({"access.users.0.email": "Admin"}, "User admin: spec.email: "),
    ({"gpuControlPlane.pools.0.nodeGroups": ["w-std"]}, "pools training: node group w-std has no gpu"),
    ({"gpuControlPlane.pools.0.nodeGroups": ["nowhere"]}, "pools training: there is no node group nowhere"),
    ({"nodeGroups.2.gpu": {"setup": "Native"}}, "pools training: the cards of w-gpu are handed out by Deckhouse"),
    (
        {"nodeGroups.2.labels": {"gpu.deckhouse.io/enabled": "false"}},
        "pools training: nobody looks after the cards of w-gpu, since its label gpu.deckhouse.io/enabled is 'false'",
    ),
    (
        {
            "gpuControlPlane.settings.managedNodes": {"labelKey": "x.io/m", "enabledByDefault": False},
            "nodeGroups.2.labels": {"x.io/m": "no"},
        },
        "pools training: nobody looks after the cards of w-gpu, since its label x.io/m is 'no'",
    ),
    ({"gpuControlPlane.settings.managedNodes": []}, "spec.settings.managedNodes: an object is needed here"),
    ({"gpuControlPlane.settings.managedNodes": {"labelKey": []}}, "managedNodes.labelKey: a string is needed here"),
    ({"gpuControlPlane.pools.0.mode": "MIG"}, "pools training: mode MIG needs migProfile"),
    (
        {"gpuControlPlane.pools.0.mode": "MIG", "gpuControlPlane.pools.0.migProfile": "1g"},
        "pools training: 1g is no MIG profile",
    ),
    ({"gpuControlPlane.pools.1.replicas": None}, "pools small: mode TimeSlice needs replicas"),
    ({"gpuControlPlane.pools.1.name": "training"}, "gpuControlPlane.pools: 2 pools are called training"),
    ({"registryCertificates.0.certificate": "file:cluster.yaml"}, "cluster.yaml is no certificate in PEM"),
    (
        {"gpuControlPlane.settings.console.enabeld": True},
        "ModuleConfig gpu-control-plane: spec.settings.console: enabeld is not known here: did you mean enabled?",
    ),
    (
        {"gpuControlPlane.settings.logLevel": "info"},
        "spec.settings.logLevel: info is none of Debug, Info, Warn, Error.",
    ),
    (
        {"gpuControlPlane.settings.highAvailability": "yes"},
        "spec.settings.highAvailability: a boolean is needed here, and",
    ),
    ({"gpuControlPlane.settings.nodeSelector": {"gpu": True}}, "spec.settings.nodeSelector.gpu: a string is needed"),
    (
        {"gpuControlPlane.settings.tolerations": [{"kye": "a"}]},
        "tolerations[0]: kye is not known here: did you mean key?",
    ),
    ({"gpuControlPlane.settings.bootstrap": {"gfd": {"sleepInterval": "often"}}}, "'often' is not of the form "),
    (
        {"gpuControlPlane.settings.bootstrap": {"dcgm": {"port": 80}}},
        "bootstrap.dcgm.port: 80: at least 1025 is needed.",
    ),
    (
        {"gpuControlPlane.settings.bootstrap": {"dcgm": {"port": True}}},
        "bootstrap.dcgm.port: an integer is needed here",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG_SHAPES, ids=[text for _, text in WRONG_SHAPES])
def test_a_wrong_shape_is_named_by_its_path(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadDescription) as refused:
        read_description(changed(changes))
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(("changes", "sentence"), BROKEN_RULES, ids=[text for _, text in BROKEN_RULES])
def test_a_broken_rule_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadDescription) as refused:
        rendered(changes)
    assert [problem for problem in refused.value.problems if sentence in problem], refused.value


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadDescription) as refused:
        rendered({"deckhouse.license": None, "masters.hosts": ["10.0.0.1-10.0.0.2"]})
    assert len(refused.value.problems) == 4


def test_the_example_alone_says_which_files_to_put_beside_it(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CliRunner().invoke(commands, ["deckhouse", "example"]).output)
    ran = CliRunner().invoke(commands, ["deckhouse", "render", str(tmp_path / "cluster.yaml")])
    assert ran.exit_code == 1
    for place, file in (("registryCertificates gitlab", "gitlab-registry"), ("certificateAuthority", "internal-ca")):
        assert place in ran.output
        assert f"certificates/{file}.pem cannot be read: put the certificate there, or leave" in ran.output


def test_a_file_that_is_no_text_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "certificates").mkdir()
    for name in ("gitlab-registry", "internal-ca"):
        (tmp_path / f"certificates/{name}.pem").write_bytes(b"\x30\x82\xff")
    (tmp_path / "cluster.yaml").write_text(changed({}))
    ran = CliRunner().invoke(commands, ["deckhouse", "render", str(tmp_path / "cluster.yaml")])
    assert (ran.exit_code, ran.output.count("is no certificate in PEM")) == (1, 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The description is empty: "),
        ("- a", "This is no description of a cluster: "),
        ("just words", "This is no description of a cluster: "),
        ("a: [", "This is no YAML: "),
        (b"version: \xff", "This is no text in UTF-8, line 1"),
        (changed({}) + "\n---\nversion: 1", "There are 2 documents, and one is expected"),
        ("version: 1\nssh: {}\nssh: {}", "Line 3: ssh was there in line 2, and only the last would count"),
    ],
)
def test_what_is_no_description_is_refused(text: str | bytes, sentence: str) -> None:
    with pytest.raises(BadDescription) as refused:
        read_description(text)
    assert str(refused.value).startswith(sentence)


SECRETS = (
    "deckhouse.license",
    "ssh.privateKey",
    "ssh.sudoPassword",
    "storage.ceph.userKey",
    "access.users.0.password",
    "certificateAuthority.key",
)


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("text", ["AQB0b3BzZWNyZXQ=", "file:", "env:", "env:NOT A NAME", "ASK"])
def test_a_secret_in_the_description_is_refused_and_not_repeated(path: str, text: str) -> None:
    with pytest.raises(BadDescription) as refused:
        read_description(changed({path: text}))
    assert "a secret has no place in this file" in str(refused.value)
    assert "AQB0b3BzZWNyZXQ=" not in str(refused.value)
