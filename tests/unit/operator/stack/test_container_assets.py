"""Rights of the operands for containers, and what their assets are made of."""

from typing import Any

import pytest
import yaml

from gpu_control_plane.operator.stack.manifest import assets
from gpu_control_plane.operator.stack.operands import mps_control_daemon
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import RenderInput
from unit.operator.stack.container_builders import (
    NAMESPACE,
    OPENSHIFT,
    ROWS,
    STATES,
    Row,
    daemonset,
    objects,
    of_kind,
    render_input,
)

OWN_ACCOUNT = [row for row in ROWS if row.state is not mps_control_daemon.STATE]
OF_THE_PLATFORM = {"state-container-toolkit", "state-device-plugin", "state-mps-control-daemon"}

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
each_account = pytest.mark.parametrize("row", OWN_ACCOUNT, ids=lambda row: row.name)


@each
def test_without_gpu_nodes_there_is_no_daemonset_but_everything_else(row: Row) -> None:
    scene = row.render_input()
    empty = RenderInput(policy=scene.policy, platform=scene.platform)
    assert objects(row.state, empty) == [held for held in objects(row.state, scene) if held["kind"] != "DaemonSet"]


@each_account
def test_the_account_of_the_pods_is_the_one_that_has_the_rights(row: Row) -> None:
    scene = render_input(dcgmExporter={"enablePodLabels": True})
    account = daemonset(row.state, scene).pod["serviceAccountName"]
    (held,) = of_kind(row.state, scene, "ServiceAccount")
    assert held["metadata"]["name"] == account
    for kind in ("Role", "ClusterRole"):
        names = {role["metadata"]["name"] for role in of_kind(row.state, scene, kind)}
        bindings = of_kind(row.state, scene, f"{kind}Binding")
        assert {binding["roleRef"]["name"] for binding in bindings} == names
        for binding in bindings:
            assert binding["roleRef"]["kind"] == kind
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]


RIGHTS = [
    ("state-container-toolkit", "Role", "daemonsets", {"list"}),
    ("state-operator-validation", "Role", "pods", {"create", "get", "list", "watch", "update", "patch", "delete"}),
    ("state-operator-validation", "Role", "daemonsets", {"get", "list", "watch"}),
    ("state-operator-validation", "ClusterRole", "nodes", {"get", "list", "watch"}),
    ("state-device-plugin", "ClusterRole", "nodes", {"get", "list", "watch"}),
    ("gpu-feature-discovery", "ClusterRole", "nodes", {"get", "list", "watch"}),
    ("gpu-feature-discovery", "Role", "nodefeatures", {"get", "list", "watch", "create", "update"}),
    ("state-mig-manager", "ClusterRole", "nodes", {"get", "list", "watch", "update", "patch"}),
    ("state-mig-manager", "Role", "pods", {"get", "list", "watch", "delete"}),
    ("state-mig-manager", "Role", "configmaps", {"get", "list", "create", "update", "patch"}),
    ("state-dcgm-exporter", "Role", "configmaps", {"get", "list"}),
    ("state-dcgm-exporter", "ClusterRole", "pods", {"get", "list", "watch"}),
    ("state-node-status-exporter", "Role", "pods", {"get", "list"}),
    ("state-node-status-exporter", "Role", "daemonsets", {"get", "list", "watch"}),
    ("state-node-status-exporter", "ClusterRole", "nodes", {"get", "list", "watch"}),
]


@pytest.mark.parametrize(("state", "kind", "resource", "verbs"), RIGHTS)
def test_rights_are_those_an_operand_needs_and_no_more(state: str, kind: str, resource: str, verbs: set[str]) -> None:
    rules = [rule for manifest in assets(state) if manifest["kind"] == kind for rule in manifest["rules"]]
    (rule,) = [rule for rule in rules if resource in rule["resources"]]
    assert set(rule["verbs"]) == verbs


@each
def test_on_openshift_the_account_may_use_the_constraints_it_needs(row: Row) -> None:
    made = render_state(row.state, render_input(openshift=OPENSHIFT)).manifests
    own = [held for held in made if held["kind"] == "SecurityContextConstraints"]
    assert bool(own) is (row.state.name not in OF_THE_PLATFORM)
    if row.state is mps_control_daemon.STATE:
        return
    rules = [rule for held in made if held["kind"] == "Role" for rule in held["rules"]]
    (use,) = [rule for rule in rules if "securitycontextconstraints" in rule["resources"]]
    assert use["verbs"] == ["use"]
    assert use["resourceNames"] == ([held["metadata"]["name"] for held in own] or ["privileged"])


@each
def test_constraints_allow_what_the_pod_asks_for(row: Row) -> None:
    sections: dict[str, Any] = {"dcgmExporter": {"hostPID": True}}
    sections[row.section] = {**sections.get(row.section, {}), "hostNetwork": True}
    scene = render_input(openshift=OPENSHIFT, **sections)
    pod = daemonset(row.state, scene).pod
    for held in of_kind(row.state, scene, "SecurityContextConstraints"):
        assert "namespace" not in held["metadata"]
        assert held["allowPrivilegedContainer"] is True
        assert held["allowHostNetwork"] is True
        assert held["allowHostPID"] is bool(pod.get("hostPID"))
        assert held["allowHostIPC"] is bool(pod.get("hostIPC"))
        assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= set(held["volumes"])


def test_outside_openshift_there_is_nothing_of_openshift() -> None:
    for state in STATES:
        kinds = {held["kind"] for held in objects(state, render_input())}
        assert not kinds & {"SecurityContextConstraints", "PrometheusRule"}


def test_assets_are_plain_yaml_without_a_namespace() -> None:
    for state in STATES:
        for manifest in assets(state.name, openshift=True):
            assert "namespace" not in manifest["metadata"]
            assert yaml.safe_load(yaml.safe_dump(manifest)) == manifest
