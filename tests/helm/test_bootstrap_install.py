"""NVIDIA's own programs in a real cluster: it takes them, puts them on managed nodes, keeps them to their rights."""

import subprocess
from typing import Any, Final

import pytest
import yaml

from gpu_control_plane.local.errors import BuildFailed
from helm.chart import NAMESPACE, Helm, Manifest
from helm.conftest import cannot
from helm.installed import WITH_CARDS, Installed
from helm.operands import BOOTSTRAP_SETS, COMPONENTS, GFD, switched_on
from monitoring.operator_crds import operator_crds
from waiting import until

DISCOVERY: Final = f"gpu-control-plane-{GFD}"
FEATURES: Final = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
MERGE: Final = "application/merge-patch+json"
OPTED_OUT: Final = WITH_CARDS[1]


@pytest.fixture(scope="module")
def knowing_monitors(api_server: Installed) -> Installed:
    """An API server with the Prometheus operator's own CRDs."""
    try:
        crds = [f"--filename={crd}" for crd in operator_crds()]
    except BuildFailed as why:
        cannot(str(why))
        raise
    api_server.kubectl("apply", "--server-side", *crds)
    api_server.kubectl("wait", "--for=condition=Established", *crds)
    return api_server


@pytest.mark.parametrize("values", BOOTSTRAP_SETS.values(), ids=BOOTSTRAP_SETS)
def test_the_api_server_takes_every_render(knowing_monitors: Installed, helm: Helm, values: dict[str, Any]) -> None:
    rendered = helm.objects(values).all
    ask = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    answer = knowing_monitors.kubectl(*ask, given=yaml.safe_dump_all(rendered))
    assert len(answer.splitlines()) == len(rendered)


@pytest.mark.timeout(600)
async def test_programs_come_to_managed_nodes_and_stay_within_their_rights(empty_cluster: Installed) -> None:
    values = switched_on()
    values["bootstrap"] |= {"runtimeClassName": ""}  # there is none in this cluster, and pods would be refused
    values["bootstrap"]["gfd"] |= {"nodeFeatureAPI": True, "config": "configurations"}
    _label(empty_cluster, OPTED_OUT, "gpu.deckhouse.io/enabled", "false")
    empty_cluster.install(values)

    managed = {"node-a", "node-c", "node-d", "node-e"}
    await until(lambda: {frozenset(nodes) for nodes in _pods(empty_cluster).values()} == {frozenset(managed)})
    before = _pods(empty_cluster)

    _label(empty_cluster, OPTED_OUT, "gpu.deckhouse.io/enabled", None)
    await until(
        lambda: all(OPTED_OUT in _pods(empty_cluster)[each] for each in before), saying="pods on the node that joins"
    )
    after = _pods(empty_cluster)
    assert {name: after[name] | pods for name, pods in before.items()} == after, "pods of other nodes were replaced"

    await _labels_its_own_node_only(empty_cluster)
    for account, question in (
        (GFD, "list nodes"),
        (GFD, "get pods -n d8-gpu-operator"),
        ("validator", "list daemonsets.apps -n d8-gpu-operator"),
    ):
        assert _may(empty_cluster, account, question) == "yes", question
    for account, question in (
        (GFD, "patch nodes"),
        (GFD, "delete nodefeatures.nfd.k8s-sigs.io -n d8-gpu-operator"),
        (GFD, "get secrets -n d8-gpu-operator"),
        ("dcgm", "list nodes"),
        ("dcgm-exporter", "list pods"),
        ("validator", "create pods -n d8-gpu-operator"),
        ("validator", "list daemonsets.apps -n kube-system"),
    ):
        assert _may(empty_cluster, account, question) == "no", question


async def _labels_its_own_node_only(cluster: Installed) -> None:
    kubeconfig = str(cluster.account(DISCOVERY, "node-a"))

    def publish(about: str, *options: str, **labels: str) -> str:
        meta = {"name": f"nvidia-features-for-{about}", "namespace": NAMESPACE}
        feature = {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": {**meta, "labels": {"nfd.node.kubernetes.io/node-name": about}},
            "spec": {"features": {}, "labels": labels},
        }
        given = yaml.safe_dump(feature)
        return _kubectl(cluster, "--kubeconfig", kubeconfig, "create", *options, "-f", "-", given=given).stderr

    await until(
        lambda: "may describe its own node only" in publish("node-c", "--dry-run=server"),
        saying="the policy is in force, which takes it a moment",
    )
    assert "labels that begin with nvidia.com/" in publish("node-a", **{"node-role.kubernetes.io/master": ""})
    assert publish("node-a", **{"nvidia.com/gpu.count": "2"}) == ""
    assert cluster.exists(f"{FEATURES}/nvidia-features-for-node-a")


def _pods(cluster: Installed) -> dict[str, dict[str, str]]:
    """The pods of DaemonSets on GPU nodes: by component, then node, their identity."""
    found: dict[str, dict[str, str]] = {each: {} for each in (*COMPONENTS.values(), "agent")}
    for pod in cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]:
        component = _component(pod)
        if component in found and "nodeName" in pod["spec"]:
            found[component][pod["spec"]["nodeName"]] = pod["metadata"]["uid"]
    return found


def _component(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def _label(cluster: Installed, node: str, label: str, value: str | None) -> None:
    cluster.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {label: value}}}, MERGE)


def _may(cluster: Installed, component: str, question: str) -> str:
    who = f"system:serviceaccount:{NAMESPACE}:gpu-control-plane-{component}"
    kubeconfig = str(cluster.cluster.kubeconfig)
    return _kubectl(
        cluster, "--kubeconfig", kubeconfig, "auth", "can-i", *question.split(), f"--as={who}"
    ).stdout.strip()


def _kubectl(cluster: Installed, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Whatever comes of it."""
    return subprocess.run([cluster.program, *arguments], input=given, capture_output=True, text=True, check=False)
