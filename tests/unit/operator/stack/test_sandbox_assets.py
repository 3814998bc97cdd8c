"""Rights of the operands for virtual machines, and what their assets are made of."""

import subprocess
from importlib import resources

import pytest
import yaml

from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.render_input import RenderInput
from unit.operator.stack.sandbox_builders import NAMESPACE, ROWS, STATES, Row, objects, render_input

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@each
def test_without_gpu_nodes_there_are_rights_but_no_daemonset(row: Row) -> None:
    scene = RenderInput(policy=row.render_input().policy, platform=render_input().platform)
    kinds = [manifest["kind"] for manifest in objects(row.state, scene)]
    assert "DaemonSet" not in kinds
    assert {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} <= set(kinds)


@each
def test_the_account_of_the_pods_is_the_one_that_has_the_rights(row: Row) -> None:
    made = objects(row.state, row.render_input())
    account = row.name.removesuffix("-daemonset")
    by_kind = {manifest["kind"]: manifest for manifest in made}
    assert by_kind["DaemonSet"]["spec"]["template"]["spec"]["serviceAccountName"] == account
    for kind in ("ServiceAccount", "Role", "ClusterRole"):
        assert by_kind[kind]["metadata"]["name"] == account
    for binding, role in (("RoleBinding", "Role"), ("ClusterRoleBinding", "ClusterRole")):
        assert by_kind[binding]["roleRef"]["name"] == by_kind[role]["metadata"]["name"]
        assert by_kind[binding]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]


RIGHTS = [
    ("state-vgpu-manager", "nodes", "patch"),
    ("state-vgpu-manager", "pods", "list"),
    ("state-vgpu-manager", "pods/eviction", "create"),
    ("state-vfio-manager", "nodes", "patch"),
    ("state-vfio-manager", "pods", "list"),
    ("state-vfio-manager", "pods/eviction", "create"),
    ("state-vgpu-device-manager", "nodes", "update"),
    ("state-sandbox-validation", "nodes", "get"),
    ("state-sandbox-device-plugin", "pods", "delete"),
    ("state-sandbox-device-plugin", "nodefeatures", "create"),
    ("state-kata-device-plugin", "pods", "create"),
    ("state-kata-device-plugin", "nodefeatures", "update"),
    ("state-cc-manager", "nodes", "patch"),
]


@pytest.mark.parametrize(("state", "resource", "verb"), RIGHTS)
def test_rights_that_an_operand_cannot_do_without(state: str, resource: str, verb: str) -> None:
    rules = [rule for manifest in assets(state) for rule in manifest.get("rules", ())]
    assert any(resource in rule["resources"] and verb in rule["verbs"] for rule in rules)


def _constraints(state: str) -> list[str]:
    held = assets(state, openshift=True)
    return [manifest["metadata"]["name"] for manifest in held if manifest["kind"] == "SecurityContextConstraints"]


def test_no_two_states_share_security_context_constraints() -> None:
    folder = resources.files("gpu_control_plane.operator") / "assets"
    names = [name for state in folder.iterdir() if state.is_dir() for name in _constraints(state.name)]
    assert len(names) == len(set(names))
    assert _constraints("state-cc-manager") == ["nvidia-cc-manager"]


@each
def test_on_openshift_the_account_may_use_constraints_of_its_own(row: Row) -> None:
    scene = render_input(row.render_input().policy, openshift=OpenShift(version="4.20"))
    (made,) = [m for m in objects(row.state, scene) if m["kind"] == "SecurityContextConstraints"]
    account = row.name.removesuffix("-daemonset")
    assert made["metadata"]["name"] == account
    assert made["users"] == [f"system:serviceaccount:{NAMESPACE}:{account}"]
    assert "namespace" not in made["metadata"]


@each
def test_elsewhere_there_are_no_constraints(row: Row) -> None:
    assert all(manifest["kind"] != "SecurityContextConstraints" for manifest in objects(row.state, row.render_input()))


def _scripts() -> list[tuple[str, str]]:
    found = []
    for state in STATES:
        for manifest in assets(state.name):
            if manifest["kind"] == "DaemonSet" and "spec" in manifest:
                found += [
                    (f"{state.name}/{held.name}", script)
                    for held in DaemonSetManifest(manifest).containers()
                    for script in _script(held.manifest)
                ]
    return found


def _script(container: Manifest) -> list[str]:
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    own = container["args"] if container.get("command", [])[:2] == ["sh", "-c"] else []
    return [*own[:1], *(hook[2:3] if hook[:2] == ["sh", "-c"] else [])]


@pytest.mark.parametrize(("where", "script"), _scripts())
def test_a_shell_understands_every_script(where: str, script: str) -> None:
    done = subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stderr}"


def test_what_kata_manager_left_behind_is_known_by_name() -> None:
    named = {
        (manifest["kind"], manifest["metadata"]["name"]) for manifest in assets("state-kata-manager", openshift=True)
    }
    assert named == {
        ("ServiceAccount", "nvidia-kata-manager"),
        ("Role", "nvidia-kata-manager"),
        ("RoleBinding", "nvidia-kata-manager"),
        ("ClusterRole", "nvidia-kata-manager"),
        ("ClusterRoleBinding", "nvidia-kata-manager"),
        ("ConfigMap", "nvidia-kata-manager-entrypoint"),
        ("ConfigMap", "nvidia-kata-manager-config"),
        ("DaemonSet", "nvidia-kata-manager"),
    }


def test_assets_are_plain_yaml_without_a_namespace() -> None:
    for state in STATES:
        for manifest in assets(state.name, openshift=True):
            assert "namespace" not in manifest["metadata"]
            assert yaml.safe_load(yaml.safe_dump(manifest)) == manifest
