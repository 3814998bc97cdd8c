"""How the chart fits into clusters with rules of their own: network, Pod Security, priorities, hosts, autoscaling."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from gpu_control_plane.installation.pod_security import ENFORCE
from helm.chart import NAMESPACE, OPERANDS, VALUE_SETS, Helm, Manifest, Refused
from helm.installed import Installed
from helm.vertical_pod_autoscaler import CRD, SERVED

MONITORING = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
MERGE = "application/merge-patch+json"
_KUBERAY = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: ray-operator-leader, namespace: default}}
spec: {{holderIdentity: kuberay-operator-1_2, leaseDurationSeconds: 15, renewTime: "{now}"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: kuberay-operator, namespace: default}}
---
apiVersion: v1
kind: Pod
metadata: {{name: kuberay-operator-1, namespace: default}}
spec: {{serviceAccountName: kuberay-operator, containers: [{{name: main, image: kuberay}}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: kuberay-operator}}
rules: [{{apiGroups: [ray.io], resources: [rayclusters/status], verbs: [update]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: kuberay-operator}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kuberay-operator}}
subjects: [{{kind: ServiceAccount, name: kuberay-operator, namespace: default}}]
"""
"""What shows the operator of KubeRay to be there: a Lease, and a holder with the rights of one."""


# Network.


def test_every_pod_of_ours_is_closed_but_for_what_it_serves(helm: Helm) -> None:
    """Each port that a pod has is opened by exactly one policy, and nothing else is."""
    objects = helm.objects({**VALUE_SETS["closed"], "bootstrap": _exporter()})
    policies = objects.of("NetworkPolicy")
    for component, pod in objects.pods():
        labels = pod["metadata"]["labels"]
        rules = [each for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
        assert any("ingress" not in each["spec"] for each in rules), f"{component} is open"
        opened = [port["port"] for each in rules for rule in each["spec"].get("ingress", ()) for port in rule["ports"]]
        served = [port["name"] for port in pod["spec"]["containers"][0].get("ports", ())]
        if component == "console":
            served.remove("console")  # without TLS it listens for `kubectl port-forward` alone
        assert sorted(opened) == sorted(served), component


def test_metrics_are_for_those_who_are_named(helm: Helm) -> None:
    for policy in helm.objects(VALUE_SETS["closed"]).of("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            if rule["ports"] == [{"port": "metrics"}]:
                assert rule["from"] == MONITORING, policy["metadata"]["name"]
            else:
                assert "from" not in rule


def test_without_the_value_only_what_is_dangerous_is_closed(helm: Helm) -> None:
    assert helm.objects().of("NetworkPolicy") == []
    closed = helm.objects({"bootstrap": {"dcgm": {"enabled": True, "image": "dcgm:1"}}}).of("NetworkPolicy")
    assert [each["metadata"]["name"] for each in closed] == ["gpu-control-plane-dcgm"]


# Pod Security.


def test_a_level_that_refuses_the_agent_is_named_before_anything_is_installed(api_server: Installed) -> None:
    sentence = rf"the namespace {NAMESPACE}: somebody has set it to enforce «baseline».*kubectl label namespace"
    with _level(api_server, "baseline"), pytest.raises(AssertionError, match=sentence):
        api_server.run_hook("install-crds", {})
    assert not api_server.exists("/apis/gpu.deckhouse.io/v1alpha1")


def test_a_kuberay_that_ray_would_not_believe_is_named_before_anything_is_installed(api_server: Installed) -> None:
    """KubeRay's chart lands in `default` unless somebody names a namespace, and users write there."""
    kuberay = _KUBERAY.format(now=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")
    api_server.kubectl("create", "-f", "-", given=kuberay)
    try:
        with pytest.raises(AssertionError, match=r"Set ray\.kuberayNamespaces=\{default\}"):
            api_server.run_hook("install-crds", {"ray": {"enabled": True, "kuberayNamespaces": ["infra"]}})
    finally:
        api_server.kubectl("delete", "--now", "-f", "-", given=kuberay)


def test_what_a_job_says_when_it_fails_is_printed_by_helm(helm: Helm) -> None:
    for job in helm.objects(VALUE_SETS["many-replicas"]).of("Job"):
        assert "hook-failed" in job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"]


def test_a_namespace_without_a_level_is_labelled(api_server: Installed) -> None:
    values = VALUE_SETS["many-replicas"]
    with _level(api_server, None), _level(api_server, None, OPERANDS):
        said = api_server.run_hook("label-namespaces", values)
        assert said.splitlines() == [
            f"namespace {each}: labelled {ENFORCE}=privileged" for each in (NAMESPACE, OPERANDS)
        ]
        assert _labels(api_server)[ENFORCE] == _labels(api_server, OPERANDS)[ENFORCE] == "privileged"
        assert "enforces «privileged» already" in api_server.run_hook("label-namespaces", values)


def test_a_level_that_somebody_has_set_stays(api_server: Installed) -> None:
    with _level(api_server, "restricted"):
        with pytest.raises(AssertionError, match=r"has set it to enforce «restricted».*kubectl label namespa"):
            api_server.run_hook("label-namespaces", VALUE_SETS["closed"])
        assert _labels(api_server)[ENFORCE] == "restricted"


# Priorities and hosts.


def test_classes_of_our_own_take_the_place_of_kubernetes_own(helm: Helm) -> None:
    values = {"priorityClasses": {"create": True}, "discovery": {"enabled": True, "priorityClassName": "mine"}}
    objects = helm.objects(values)
    assert objects.pod("controller")["spec"]["priorityClassName"] == "gpu-control-plane-cluster-critical"
    assert objects.pod("agent")["spec"]["priorityClassName"] == "gpu-control-plane-node-critical"
    assert objects.pod("discovery")["spec"]["priorityClassName"] == "mine"
    made = {each["metadata"]["name"]: each["value"] for each in objects.of("PriorityClass")}
    assert made["gpu-control-plane-cluster-critical"] < made["gpu-control-plane-node-critical"] <= 10**9


def test_without_them_nothing_is_made(helm: Helm) -> None:
    objects = helm.objects()
    assert objects.of("PriorityClass") == []
    assert objects.pod("agent")["spec"]["priorityClassName"] == "system-node-critical"


@pytest.mark.parametrize(
    ("spread", "required"),
    [
        ("Prefer", []),
        ("RequireHosts", ["kubernetes.io/hostname"]),
        ("RequireZones", ["topology.kubernetes.io/zone"]),
    ],
)
def test_replicas_are_apart_where_that_can_be_or_has_to_be(helm: Helm, spread: str, required: list[str]) -> None:
    constraints = helm.objects({"controller": {"spread": spread}}).pod("controller")["spec"][
        "topologySpreadConstraints"
    ]
    assert {each["topologyKey"] for each in constraints} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert [each["topologyKey"] for each in constraints if each["whenUnsatisfiable"] == "DoNotSchedule"] == required


# Autoscaling.


def test_autoscalers_are_made_for_every_program_that_runs(api_server: Installed, helm: Helm) -> None:
    values = {
        "verticalPodAutoscaler": {"enabled": True, "updateMode": "InPlaceOrRecreate"},
        "console": {"enabled": True},
        "discovery": {"enabled": True},
    }
    objects = helm.objects(values, served=SERVED)
    scaled = objects.of("VerticalPodAutoscaler")
    for each in scaled:
        target = objects.one(each["spec"]["targetRef"]["kind"], each["spec"]["targetRef"]["name"])
        (policy,) = each["spec"]["resourcePolicy"]["containerPolicies"]
        (container,) = target["spec"]["template"]["spec"]["containers"]
        assert policy["containerName"] == container["name"]
    assert len(scaled) == 4
    api_server.kubectl("apply", "-f", "-", given=yaml.safe_dump(CRD))
    api_server.kubectl("wait", "--for=condition=Established", f"crd/{CRD['metadata']['name']}", "--timeout=60s")
    ask = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    assert len(api_server.kubectl(*ask, given=yaml.safe_dump_all(scaled)).splitlines()) == len(scaled)


def test_autoscalers_without_their_kind_are_refused_with_what_to_do(helm: Helm) -> None:
    with pytest.raises(Refused, match=r"needs the VerticalPodAutoscaler, which this cluster does not have: install it"):
        helm.template({"verticalPodAutoscaler": {"enabled": True}})


def _exporter() -> dict[str, Any]:
    return {"dcgmExporter": {"enabled": True, "image": "dcgm-exporter:1"}, "dcgm": {"enabled": True, "image": "dcgm:1"}}


def _labels(cluster: Installed, namespace: str = NAMESPACE) -> Manifest:
    found: Manifest = cluster.request("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
    return found


@contextmanager
def _level(cluster: Installed, level: str | None, namespace: str = NAMESPACE) -> Iterator[None]:
    """The level that a namespace enforces, for a while."""

    def enforce(level: str | None) -> None:
        cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {ENFORCE: level}}}, MERGE)

    enforce(level)
    try:
        yield
    finally:
        enforce(None)
