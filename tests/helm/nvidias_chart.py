"""A chart of the same shape as that of NVIDIA's operator, and a stand-in for the operator.

It has CRDs that Helm installs and never deletes, a ClusterPolicy that belongs to the release, rights, hooks, the
operator's Deployment, and Node Feature Discovery. Its values are those of NVIDIA's chart.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from gpu_control_plane.api.nvidia import DEFINITIONS
from gpu_control_plane.api.nvidia.names import LEASE, NodeLabel
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.labelling.keys import DEPLOY_KEYS
from gpu_control_plane.operator.migration.chart_defaults import CHART, DEFAULTS
from helm.chart import Manifest
from helm.installed import Installed
from unit.api.nvidia.stock import stock_policy
from waiting import until

HOME: Final = "gpu-operator"
RELEASE: Final = "gpu-operator"
LABELS: Final = {"app.kubernetes.io/component": "gpu-operator", "app.kubernetes.io/managed-by": "Helm"}
OPERANDS: Final = {
    "nvidia-driver-daemonset": "driver",
    "nvidia-container-toolkit-daemonset": "container-toolkit",
    "nvidia-device-plugin-daemonset": "device-plugin",
    "nvidia-dcgm-exporter": "dcgm-exporter",
}
"""Some of the DaemonSets that NVIDIA's operator makes of this policy, and the label that brings each to a node."""

_RBAC: Final = "rbac.authorization.k8s.io"
BESIDE_THEM: Final[dict[str, Manifest]] = {
    "/apis/node.k8s.io/v1/runtimeclasses/nvidia": {"handler": "nvidia"},
    f"/apis/{_RBAC}/v1/clusterroles/nvidia-driver": {"rules": []},
    f"/apis/{_RBAC}/v1/clusterrolebindings/nvidia-driver": {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "nvidia-driver"},
        "subjects": [{"kind": "ServiceAccount", "name": "nvidia-driver", "namespace": HOME}],
    },
    f"/api/v1/namespaces/{HOME}/serviceaccounts/nvidia-driver": {},
    f"/apis/{_RBAC}/v1/namespaces/{HOME}/roles/nvidia-driver": {"rules": []},
    f"/api/v1/namespaces/{HOME}/configmaps/nvidia-driver-startup-probe": {"data": {"startup-probe.sh": "true"}},
    f"/api/v1/namespaces/{HOME}/services/nvidia-dcgm-exporter": {
        "spec": {"ports": [{"name": "gpu-metrics", "port": 9400}], "selector": {"app": "nvidia-dcgm-exporter"}}
    },
}
"""Some of what it makes besides, by where it is: all of them are ours afterwards, and remain the same objects."""

_PODS: Final = f"/api/v1/namespaces/{HOME}/pods"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
_DAEMONSETS: Final = f"/apis/apps/v1/namespaces/{HOME}/daemonsets"
_MERGE: Final = "application/merge-patch+json"


def write_chart(folder: Path) -> Path:
    """Put the chart into an empty folder."""
    (folder / "templates").mkdir(parents=True)
    (folder / "crds").mkdir()
    chart = {"apiVersion": "v2", "name": "gpu-operator", "version": CHART, "appVersion": CHART}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (folder / "values.yaml").write_text(yaml.safe_dump(DEFAULTS))
    for definition in DEFINITIONS:
        (folder / "crds" / f"{definition.name}.yaml").write_text(yaml.safe_dump(their_crd(definition)))
    (folder / "templates" / "all.yaml").write_text(yaml.safe_dump_all(_objects()))
    return folder


def their_crd(definition: Definition) -> Manifest:
    """A CRD as NVIDIA ships it: unknown fields are dropped, also those of the status that are ours."""
    manifest = definition.manifest({"controller-gen.kubebuilder.io/version": "v0.20.0"})
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    status = schema["status"]["properties"]
    schema["status"]["properties"] = {name: status[name] for name in ("state", "namespace", "conditions")}
    conditions = status["conditions"]
    for key in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "maxItems"):
        conditions.pop(key, None)
    conditions["items"]["required"] = ["type", "status", "lastTransitionTime", "reason", "message"]
    _prune(schema)
    return manifest


def _prune(schema: Any) -> None:
    """Structs forget what they do not know; maps and Kubernetes' own shapes keep everything."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema.pop("x-kubernetes-preserve-unknown-fields", None)
        for inner in schema.values():
            _prune(inner)


def _objects() -> list[Manifest]:
    metadata = {"name": "gpu-operator", "labels": LABELS}
    home = {**metadata, "namespace": HOME}
    rbac = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "gpu-operator", "namespace": HOME}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    worker = {"app.kubernetes.io/name": "node-feature-discovery"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "gpu-operator"},
            "subjects": [account],
        },
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": home, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": home,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "gpu-operator"},
            "subjects": [account],
        },
        stock_policy(),
        _operator(home),
        _hook("gpu-operator-upgrade-crd", "pre-upgrade"),
        _hook("gpu-operator-cleanup-crd", "pre-delete"),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "nfd-worker", "namespace": HOME, "labels": worker},
            "spec": {
                "selector": {"matchLabels": worker},
                "template": {"metadata": {"labels": worker}, "spec": {"containers": [_container("worker")]}},
            },
        },
    ]


def _operator(metadata: Manifest) -> Manifest:
    labels = {**LABELS, "app": "gpu-operator"}
    images = [
        {"name": "DRIVER_MANAGER_IMAGE", "value": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"},
        {"name": "VALIDATOR_IMAGE", "value": f"nvcr.io/nvidia/gpu-operator:{CHART}"},
    ]
    pod = {"serviceAccountName": "gpu-operator", "containers": [{**_container("gpu-operator"), "env": images}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _hook(name: str, moment: str) -> Manifest:
    marks = {"helm.sh/hook": moment, "helm.sh/hook-delete-policy": "hook-succeeded,before-hook-creation"}
    pod = {"restartPolicy": "OnFailure", "containers": [_container("hook")]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": HOME, "annotations": marks},
        "spec": {"template": {"spec": pod}},
    }


def _container(name: str) -> Manifest:
    return {"name": name, "image": "registry.example/it:v1"}


async def lead(cluster: Installed) -> str:
    """The operator's pod becomes the leader; its name."""

    def running() -> list[str]:
        pods = cluster.request("GET", f"{_PODS}?labelSelector=app%3Dgpu-operator")["items"]
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

    await until(running, saying="NVIDIA's operator runs", within=180)
    (pod,) = running()
    spec = {"holderIdentity": f"{pod}_1f2e", "leaseDurationSeconds": 15, "renewTime": micro_time(utc_now())}
    cluster.request("POST", _LEASES, {"metadata": {"name": LEASE}, "spec": spec})
    return pod


def deploy(cluster: Installed, node: str) -> None:
    """What the operator does of the policy: labels of a node, DaemonSets and the policy's status."""
    labels = {str(NodeLabel.PRESENT): "true"} | {key: "true" for key in DEPLOY_KEYS if key.rsplit(".", 1)[1] in _WANTED}
    cluster.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}}, _MERGE)
    path = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
    policy = cluster.request("GET", path)
    owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "controller": True}
    owners = [{**owner, "uid": policy["metadata"]["uid"]}]
    for place, body in BESIDE_THEM.items():
        folder, _, name = place.rpartition("/")
        cluster.request("POST", folder, {"metadata": {"name": name, "ownerReferences": owners}, **body})
    for name, gate in OPERANDS.items():
        metadata: Manifest = {
            "name": name,
            "annotations": {"nvidia.com/last-applied-hash": "1234"},
            "ownerReferences": owners,
        }
        pod: Manifest = {
            "nodeSelector": {f"nvidia.com/gpu.deploy.{gate}": "true"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [_container("it")],
        }
        spec: Manifest = {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            "updateStrategy": {"type": "OnDelete" if gate == "driver" else "RollingUpdate"},
        }
        cluster.request("POST", _DAEMONSETS, {"metadata": metadata, "spec": spec})
    cluster.request("PATCH", f"{path}/status", {"status": {"state": "ready", "namespace": HOME}}, _MERGE)


_WANTED: Final = ("driver", "container-toolkit", "device-plugin", "dcgm-exporter", "operator-validator")
