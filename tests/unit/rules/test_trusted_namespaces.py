"""Which objects that users could write are believed: a table."""

import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import Operand, is_trusted, operand_of
from gpu_control_plane.kube import ObjectMeta, OwnerReference
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces, kuberay_namespaces


@pytest.mark.parametrize(
    ("namespace", "believed"),
    [
        (NAMESPACE, True),
        ("gpu-operator", True),
        ("nvidia-gpu-operator", True),
        ("gpu-operator-resources", True),
        ("infra", True),
        ("gpu-operator-2", False),
        ("team-a", False),
        ("", False),
        (None, False),
    ],
)
def test_a_namespace_is_trusted_if_it_is_ours_or_nvidias_or_was_named(namespace: str | None, believed: bool) -> None:
    assert TrustedNamespaces(frozenset({"infra"})).include(namespace) is believed


def test_ours_is_where_our_programs_run() -> None:
    elsewhere = TrustedNamespaces(own="gpus")
    assert elsewhere.include("gpus")
    assert not elsewhere.include(NAMESPACE)


@pytest.mark.parametrize(
    ("namespace", "believed"),
    [
        (NAMESPACE, True),
        ("kuberay-operator", True),
        ("kuberay", True),
        ("ray-system", True),
        ("infra", True),
        ("gpu-operator", False),  # another operator's
        ("default", False),
        (None, False),
    ],
)
def test_kuberays_operator_is_believed_in_its_own_usual_namespaces(namespace: str | None, believed: bool) -> None:
    assert kuberay_namespaces(("infra",)).include(namespace) is believed


def pod(namespace: str, owner: str | None, **labels: str) -> Pod:
    made_by = OwnerReference(api_version="apps/v1", kind=owner or "", name="x", uid="x", controller=True)
    owners = (made_by,) if owner else ()
    return Pod(metadata=ObjectMeta(name="x", namespace=namespace, labels=labels, owner_references=owners))


@pytest.mark.parametrize(
    ("namespace", "owner", "believed"),
    [
        ("gpu-operator", "DaemonSet", True),
        ("gpu-operator", "ReplicaSet", False),
        ("gpu-operator", None, False),
        ("team-a", "DaemonSet", False),
    ],
)
def test_a_pod_is_an_operand_if_a_daemonset_of_a_trusted_namespace_made_it(
    namespace: str, owner: str | None, believed: bool
) -> None:
    assert is_trusted(pod(namespace, owner, app="nvidia-dcgm"), TrustedNamespaces()) is believed


def test_our_own_labels_count_in_our_own_namespace_only() -> None:
    ours = {"app.kubernetes.io/name": "gpu-control-plane", "app.kubernetes.io/component": "agent"}
    assert operand_of(pod(NAMESPACE, "DaemonSet", **ours), NAMESPACE) is Operand.AGENT
    assert operand_of(pod("gpu-operator", "DaemonSet", **ours), NAMESPACE) is None
    assert operand_of(pod("gpu-operator", "DaemonSet", **ours), "gpu-operator") is Operand.AGENT
