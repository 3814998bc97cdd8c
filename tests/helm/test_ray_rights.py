"""The operator of Ray can do its work with the rights that the chart gives the controller, where Ray is watched."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from blocking_wait import until
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.local import Component
from gpu_control_plane.ray.cluster.manifests import autoscaler_access
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.rules.ray.gpus import PoolResources
from helm.chart import NAMESPACE, Helm, command_of
from helm.conftest import cluster_for
from helm.installed import Installed, Program
from helm.rules import rules_of, uncovered

pytestmark = pytest.mark.timeout(300)

WATCHED = "research"
VALUES: dict[str, Any] = {"ray": {"enabled": True, "watchNamespace": [WATCHED]}}
CONTROLLER = "gpu-control-plane-controller"
POD = {
    "spec": {"containers": [{"name": "ray", "image": "ray", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}
}
CLUSTER = {
    "rayVersion": "2.55.0",
    "headGroupSpec": {"template": POD, "enableIngress": True},
    "workerGroupSpecs": [
        {"groupName": "cpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 2, "numOfHosts": 2, "template": POD}
    ],
}
FULL = CLUSTER | {
    "enableInTreeAutoscaling": True,
    "authOptions": {"mode": "token"},
    "networkPolicy": {"mode": "DenyAllIngress"},
    "gcsFaultToleranceOptions": {"backend": "rocksdb"},
}
"""With everything beside pods that a cluster may have without other controllers."""
OBJECTS: list[dict[str, Any]] = [
    {"kind": "RayCluster", "metadata": {"name": "full"}, "spec": FULL},
    {"kind": "RayJob", "metadata": {"name": "train"}, "spec": {"entrypoint": "true", "rayClusterSpec": CLUSTER}},
    {"kind": "RayService", "metadata": {"name": "chat"}, "spec": {"rayClusterConfig": CLUSTER, "serveConfigV2": "{}"}},
    {
        "kind": "RayCronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"entrypoint": "true", "rayClusterSpec": CLUSTER}},
    },
]
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
"""What the API server's own policies leave of the rights."""
MADE = {
    "/api/v1": ("pods", "services", "serviceaccounts", "secrets", "persistentvolumeclaims"),
    "/apis/rbac.authorization.k8s.io/v1": ("roles", "rolebindings"),
    "/apis/networking.k8s.io/v1": ("ingresses", "networkpolicies"),
}


@pytest.fixture(scope="module")
def cluster(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An API server with the CRDs, and with the accounts and roles of the chart."""
    with cluster_for(helm, tmp_path_factory.mktemp("ray"), Component.ETCD, Component.APISERVER) as made:
        for namespace in (NAMESPACE, WATCHED):
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        made.run_hook("install-crds", VALUES)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", *POLICIES)
        made.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(helm.objects(VALUES).of(*kinds)))
        # Without the controller-manager nobody makes the account that pods run as.
        made.request("POST", f"/api/v1/namespaces/{WATCHED}/serviceaccounts", {"metadata": {"name": "default"}})
        yield made


def names(cluster: Installed, path: str) -> set[str]:
    found = cluster.request("GET", path)["items"]
    return {
        each["metadata"]["name"] for each in found if each["metadata"]["name"] not in ("default", "kube-root-ca.crt")
    }


def test_nothing_is_forbidden_while_ray_comes_up(cluster: Installed, helm: Helm, tmp_path: Path) -> None:
    pod = helm.objects(VALUES).pod("controller")
    command = [each.replace("$(POD_NAME)", "test") for each in command_of(pod)[1:] if not each.startswith("--webhooks")]
    others = [f"--without={name}" for name in ("inventory", "bootstrap", "pools", "operator")]
    log = tmp_path / "controller.log"
    with Program([*command, *others, "--status-port=0"], cluster.account(CONTROLLER), log):
        for each in OBJECTS:
            plural = f"{each['kind'].lower()}s"
            cluster.request(
                "POST", f"/apis/ray.io/v1/namespaces/{WATCHED}/{plural}", {"apiVersion": "ray.io/v1", **each}
            )
        for group, kinds in MADE.items():
            for kind in kinds:
                path = f"{group}/namespaces/{WATCHED}/{kind}"
                until(partial(names, cluster, path), within=60)
        until(lambda: len(names(cluster, f"/apis/ray.io/v1/namespaces/{WATCHED}/rayclusters")) == 3, within=60)
        until(lambda: len(names(cluster, f"/api/v1/namespaces/{WATCHED}/pods")) >= 3 * 3, within=60)
        cluster.request("DELETE", f"/apis/ray.io/v1/namespaces/{WATCHED}/rayjobs/train")


def test_no_secret_is_made_that_belongs_to_no_ray_cluster(cluster: Installed) -> None:
    """Whoever takes over the controller must not make himself the token of another account."""
    kubeconfig = str(cluster.account(CONTROLLER))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "full", "uid": "u", "controller": True}
    account = {"kubernetes.io/service-account.name": "default"}
    secrets: list[dict[str, Any]] = [
        {"metadata": {"name": "stray", "namespace": WATCHED}},
        {
            "metadata": {"name": "token", "namespace": WATCHED, "ownerReferences": [owner], "annotations": account},
            "type": "kubernetes.io/service-account-token",
        },
    ]
    for secret in secrets:
        given = yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", **secret})
        cluster.kubectl("--kubeconfig", kubeconfig, "create", "-f", "-", given=given, failing=True)
        path = f"/api/v1/namespaces/{WATCHED}/secrets/{secret['metadata']['name']}"
        assert not cluster.exists(path)


@pytest.mark.parametrize("watched", [[], [WATCHED]], ids=["everywhere", "one namespace"])
def test_the_controller_holds_what_autoscalers_are_granted(helm: Helm, watched: list[str]) -> None:
    """Kubernetes lets nobody grant what he does not have."""
    objects = helm.objects({"ray": {"enabled": True, "watchNamespace": watched}})
    kind, name = ("Role", "gpu-control-plane-ray") if watched else ("ClusterRole", "gpu-control-plane:ray")
    spec = {"enableInTreeAutoscaling": True, "headGroupSpec": {"template": POD}}
    cluster = msgspec.convert({"metadata": {"name": "c", "namespace": WATCHED, "uid": "u"}, "spec": spec}, RayCluster)
    context = ClusterContext(cluster=cluster, options=RayOptions(), gpus=PoolResources())
    role = autoscaler_access.role(context)
    assert role is not None
    granted = rules_of(role)
    assert uncovered(granted, rules_of(objects.one(kind, name))) == set()


def test_no_secret_of_users_may_be_changed(helm: Helm) -> None:
    """They are read for tokens of Ray; RBAC cannot say which those are."""
    rules = rules_of(helm.objects({"ray": {"enabled": True}}).one("ClusterRole", "gpu-control-plane:ray"))
    verbs = {verb for rule in rules if "secrets" in rule.resources for verb in rule.verbs}
    assert verbs == {"get", "list", "watch", "create"}


def test_rights_end_where_ray_is_watched(helm: Helm) -> None:
    """Beyond is the Lease by which KubeRay's operator is known; alone in a namespace not even that."""
    objects = helm.objects(VALUES)
    (lease,) = rules_of(objects.one("ClusterRole", "gpu-control-plane:ray"))
    assert (lease.resources, lease.resource_names, lease.verbs) == (
        ("leases",),
        ("ray-operator-leader",),
        ("list", "watch"),
    )
    alone = helm.objects({**VALUES, "ray": {"watchNamespace": [WATCHED], "singleNamespaceInstall": True}})
    assert "gpu-control-plane:ray" not in {each["metadata"]["name"] for each in alone.of("ClusterRole")}
    off = helm.objects({**VALUES, "ray": {"enabled": False}})
    parts = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in off.of("ClusterRole", "Role")}
    assert "ray" not in parts
