"""The life of a release: installed, upgraded, uninstalled, and nothing of it left."""

import subprocess

import msgspec
import pytest
import yaml

from blocking_wait import until
from gpu_control_plane.api.nodefeature import feature_name
from gpu_control_plane.installation.crds import INSTALLED
from helm.chart import CHART, NAMESPACE, RELEASE, Manifest
from helm.installed import Installed
from unit.api.nvidia.stock import stock_policy

pytestmark = pytest.mark.timeout(600)

VALUES = {"agent": {"labels": True}, "discovery": {"enabled": True}}
KINDS = (
    *("deployments.apps", "daemonsets.apps", "jobs.batch", "services", "secrets", "serviceaccounts", "leases"),
    *("roles", "rolebindings", "clusterroles", "clusterrolebindings", "poddisruptionbudgets"),
    *("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)
CRDS = [definition.name for definition in INSTALLED]
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
POOLS = "/apis/gpu.deckhouse.io/v1alpha1/gpupools"
STATES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodestates"
REPORTS = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpu-control-plane"
INDEX = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-pool-access"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpu-control-plane-webhook"
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-control-plane-webhook"
    for kind in ("validating", "mutating")
)
MERGE = "application/merge-patch+json"


def test_a_release_comes_and_goes(empty_cluster: Installed) -> None:
    cluster = empty_cluster
    notes = cluster.install(VALUES)
    assert "kubectl get gpudevices" in notes
    until(lambda: _agents(cluster) == {"node-a", "node-b", "node-c", "node-d", "node-e"})

    _leave_traces(cluster)
    _write_as_the_controller(cluster)
    written = _written_by_the_controller(cluster)
    cluster.helm("upgrade", RELEASE, str(CHART), "--wait", values={**VALUES, "controller": {"replicas": 3}})
    assert _written_by_the_controller(cluster) == written

    assert "which no GPU pool offers" in _answer_to_a_pod(cluster)
    assert " admits neither the namespace default" in _answer_to_a_pod(cluster, "training")
    assert _answer_to_a_pod(cluster, None) == ""
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "300s")
    assert " admits neither the namespace default" in _answer_to_a_pod(cluster, "training")
    assert _answer_to_a_pod(cluster, None) == ""
    assert "Admission policies removed: 13." in cluster.run_hook("cleanup", VALUES)
    until(lambda: _answer_to_a_pod(cluster, "training") == "")
    assert _leftovers(cluster) == []
    assert _labels(cluster, "node-a").keys() & {"gpu.deckhouse.io/gpu.present", "nvidia.com/gpu.count"} == set()
    assert _labels(cluster, "node-a")["nvidia.com/gpu.deploy.driver"] == "true"
    # Where our operator had the ClusterPolicy, they are ours; the job may check that no other operator runs.
    ours = {"gpu.deckhouse.io/container-runtime": "containerd"}
    cluster.request("PATCH", "/api/v1/nodes/node-a", {"metadata": {"labels": ours}}, MERGE)
    assert "Nodes from which the software stack was taken off: 1." in cluster.run_hook("cleanup", VALUES)
    assert _labels(cluster, "node-a").keys() & {*ours, "nvidia.com/gpu.deploy.driver"} == set()
    assert cluster.request("GET", REPORTS)["items"] == []
    # Objects of users stay, and can be deleted although no controller is left to remove finalizers.
    assert "finalizers" not in cluster.request("GET", f"{POOLS}/training")["metadata"]
    cluster.request("DELETE", f"{POOLS}/training")
    assert not cluster.exists(f"{POOLS}/training")


def test_the_crds_go_if_that_is_wished(empty_cluster: Installed) -> None:
    values = {"crds": {"removeOnUninstall": True}}
    empty_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    empty_cluster.run_hook("install-crds", values)
    assert all(empty_cluster.exists(_crd(name)) for name in CRDS)
    _leave_traces(empty_cluster)
    output = empty_cluster.run_hook("cleanup", values)
    assert f"CRDs deleted: {len(CRDS)}." in output
    for name in CRDS:
        empty_cluster.kubectl("wait", "--for=delete", f"crd/{name}", "--timeout=120s")
    assert empty_cluster.run_hook("cleanup", values).endswith("CRDs deleted: 0.\n")


def test_a_cluster_policy_outlives_us(empty_cluster: Installed) -> None:
    """Drivers run by it, perhaps another operator's: its CRD stays, whatever is wished."""
    values = {"crds": {"removeOnUninstall": True}}
    empty_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    empty_cluster.run_hook("install-crds", values)
    empty_cluster.request("POST", POLICIES, stock_policy())
    output = empty_cluster.run_hook("cleanup", values)
    assert "clusterpolicies.nvidia.com stays: cluster-policy would go with it." in output
    assert f"CRDs deleted: {len(CRDS) - 1}." in output
    assert empty_cluster.exists(f"{POLICIES}/cluster-policy")


def _leave_traces(cluster: Installed) -> None:
    """What controllers and agents leave in a cluster."""
    meta = {"name": "training", "finalizers": ["gpu.deckhouse.io/pool"]}
    cluster.request("POST", POOLS, _typed("GPUPool", metadata=meta, spec={}))
    labels = {
        "gpu.deckhouse.io/gpu.present": "true",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.deploy.driver": "true",  # the operator's, not ours
    }
    cluster.request("PATCH", "/api/v1/nodes/node-a", {"metadata": {"labels": labels}}, MERGE)
    cluster.request("POST", STATES, _typed("GPUNodeState", metadata={"name": "node-a"}, spec={}))
    status = {"agent": {"labels": True}}
    cluster.request("PATCH", f"{STATES}/node-a/status", {"status": status}, MERGE)
    report = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "spec": {}}
    cluster.request("POST", REPORTS, {**report, "metadata": {"name": feature_name("node-a")}})


def _write_as_the_controller(cluster: Installed) -> None:
    """What the controller writes into objects that are the chart's."""
    cluster.request("PATCH", LEASE, {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}, MERGE)
    cluster.request("PATCH", INDEX, {"data": {"gpu.deckhouse.io_training": "pool training\n\n"}}, MERGE)
    cluster.request("PATCH", SECRET, {"data": {"tls.crt": "Y2VydGlmaWNhdGU="}}, MERGE)
    bundle = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "YXV0aG9yaXR5"}
    for path in WEBHOOKS:
        cluster.request("PATCH", path, [bundle], "application/json-patch+json")


def _written_by_the_controller(cluster: Installed) -> tuple[object, ...]:
    clients = [webhook["clientConfig"] for path in WEBHOOKS for webhook in cluster.request("GET", path)["webhooks"]]
    held = (cluster.request("GET", path)["data"] for path in (SECRET, INDEX))
    return cluster.request("GET", LEASE)["spec"], *held, *clients


def _answer_to_a_pod(cluster: Installed, pool: str | None = "unknown") -> str:
    """Why a pod that asks for a card of the pool, or for none, is refused to a user; nothing if it is not."""
    limits = {f"gpu.deckhouse.io/{pool}": "1"} if pool else {}
    main = {"name": "main", "image": "any", "resources": {"limits": limits}}
    body = _typed("Pod", metadata={"name": "asking"}, spec={"containers": [main]}) | {"apiVersion": "v1"}
    group = "system:serviceaccounts:kube-system"
    who = ("--as=system:serviceaccount:kube-system:replicaset-controller", f"--as-group={group}")
    create = ("create", "--dry-run=server", "-f", "-")
    command = [str(cluster.program), f"--kubeconfig={cluster.cluster.kubeconfig}", *create]
    done = subprocess.run([*command, *who], input=yaml.safe_dump(body), capture_output=True, text=True, check=False)
    return done.stderr


def _leftovers(cluster: Installed) -> list[str]:
    answer = cluster.kubectl(
        "get", ",".join(KINDS), "-A", "-o", "name", "-l", "app.kubernetes.io/name=gpu-control-plane"
    )
    return answer.split()


def _agents(cluster: Installed) -> set[str]:
    """The nodes that an agent runs on."""
    selector = "labelSelector=app.kubernetes.io/component%3Dagent"
    pods = cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
    return {pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]}


def _labels(cluster: Installed, node: str) -> dict[str, str]:
    labels = cluster.request("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
    return msgspec.convert(labels, dict[str, str])


def _typed(kind: str, **fields: object) -> Manifest:
    return {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": kind, **fields}


def _crd(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
