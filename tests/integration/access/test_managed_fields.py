"""What people may write on cards, nodes and pools, as the API server holds it without any program of ours."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blocking_wait import until
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster
from integration.access.env import AccessEnv, Answer

MERGE = "application/merge-patch+json"
CARD = GPUDevice.resource.path(name="node-a-0000-18-00-0")
NODE = GPUNodeState.resource.path(name="node-a")
POOL = GPUPool.resource.path(name="training")
OURS = (f"system:serviceaccount:{NAMESPACE}:gpu-control-plane-controller", f"system:serviceaccounts:{NAMESPACE}")
ALICE = ("alice", "people")
ADMIN = ("admin", "system:masters")
FORBIDDEN = 403
SPEC = {"spec": {"nodeName": "node-a", "pciAddress": "0000:18:00.0"}}
APPROVED_BY = "gpu.deckhouse.io/approved-by"
ASSIGNMENT = "gpu.deckhouse.io/assignment"


@pytest.fixture
def env(own_api_server: Callable[..., Cluster]) -> Iterator[AccessEnv]:
    """People may do everything with our kinds, as far as RBAC goes."""
    cluster = own_api_server()
    install_crds(cluster.kubeconfig)
    made = AccessEnv(cluster)
    rights = {"apiGroups": ["gpu.deckhouse.io"], "resources": ["*"], "verbs": ["*"]}
    role = {"metadata": {"name": "people"}, "rules": [rights]}
    subjects = [{"kind": "Group", "name": group, "apiGroup": _RBAC} for group in (ALICE[1], OURS[1])]
    binding = {
        "metadata": {"name": "people"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "people"},
        "subjects": subjects,
    }
    for path, body in (
        (f"/apis/{_RBAC}/v1/clusterroles", role),
        (f"/apis/{_RBAC}/v1/clusterrolebindings", binding),
        (GPUDevice.resource.path(), _object(GPUDevice, CARD, SPEC)),
        (GPUNodeState.resource.path(), _object(GPUNodeState, NODE, {"spec": {}})),
        (GPUPool.resource.path(), _object(GPUPool, POOL, {"spec": {}})),
    ):
        assert made.request("POST", path, body).admitted, path
    install_policies(cluster.kubeconfig)
    until(lambda: not patch(made, ALICE, f"{POOL}/status", {"status": {"phase": "Ready"}}).admitted)
    yield made
    made.close()


_RBAC = "rbac.authorization.k8s.io"


def _object(kind: type[Any], path: str, fields: dict[str, Any]) -> dict[str, Any]:
    resource = kind.resource
    metadata = {"name": path.rpartition("/")[2]}
    return {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind, "metadata": metadata, **fields}


def patch(env: AccessEnv, who: tuple[str, str], path: str, body: dict[str, Any], *, dry: bool = True) -> Answer:
    headers = [("Impersonate-User", who[0]), ("Impersonate-Group", who[1])]
    return env.request("PATCH", f"{path}?dryRun=All" if dry else path, body, headers=headers, content_type=MERGE)


def annotated(**annotations: str | None) -> dict[str, Any]:
    return {
        "metadata": {
            "annotations": {f"gpu.deckhouse.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        }
    }


def test_what_is_managed_is_written_by_us_alone(env: AccessEnv) -> None:
    state = {"status": {"state": "Assigned"}}
    orders: dict[str, Any] = {"spec": {"assignments": []}}
    for path, body, sentence in (
        (f"{CARD}/status", state, "The status of node-a-0000-18-00-0 is written by the GPU control plane alone."),
        (f"{NODE}/status", {"status": {"deviceCount": 1}}, "The status of node-a is written by"),
        (f"{POOL}/status", {"status": {"phase": "Ready"}}, "The status of training is written by"),
        (NODE, orders, "The spec of node-a is written by the GPU control plane alone."),
        (
            CARD,
            annotated(reservation="x"),
            "Of the annotations under gpu.deckhouse.io/ people may write gpu.deckhouse.io/assignment,",
        ),
        (NODE, annotated(assignment="x"), "Of the annotations under gpu.deckhouse.io/ people may write"),
        (CARD, {"metadata": {"labels": {"gpu.deckhouse.io/product": "x"}}}, "Of the labels under gpu.deckhouse.io/"),
    ):
        answer = patch(env, ALICE, path, body)
        assert answer.status == FORBIDDEN, (path, body)
        assert answer.sentence.startswith(sentence), answer.sentence
        for who in (OURS, ADMIN):
            assert patch(env, who, path, body).admitted, (who, path, body)


def test_nobody_makes_cards_by_hand(env: AccessEnv) -> None:
    headers = [("Impersonate-User", ALICE[0]), ("Impersonate-Group", ALICE[1])]
    other = _object(GPUDevice, "/node-b-0000-18-00-0", {"spec": {"nodeName": "node-b", "pciAddress": "0000:18:00.0"}})
    answer = env.request("POST", f"{GPUDevice.resource.path()}?dryRun=All", other, headers=headers)
    assert answer.sentence.startswith("GPUDevices and GPUNodeStates come from the reports of nodes")


def test_people_write_what_is_theirs(env: AccessEnv) -> None:
    for path, body in (
        (CARD, annotated(assignment="training")),
        (CARD, annotated(assignment="training", reason="new rack")),
        (CARD, annotated(hold="we test it")),
        (CARD, annotated(clear_fault="yes")),
        (
            CARD,
            {"metadata": {"labels": {"gpu.deckhouse.io/ignore": "true", "rack": "7"}, "annotations": {"note": "x"}}},
        ),
        (POOL, {"spec": {"backend": "DevicePlugin", "scheduling": {"strategy": "Spread"}}}),
        (POOL, annotated(confirm_layout="yes")),
    ):
        answer = patch(env, ALICE, path, body)
        assert answer.admitted, (path, body, answer)


def test_nobody_signs_an_approval_for_another(env: AccessEnv) -> None:
    sentence = (
        f"The annotation {APPROVED_BY} of node-a-0000-18-00-0 says bob, and you are alice. Leave it out, or remove it:"
        f" kubectl annotate gpudevice node-a-0000-18-00-0 {APPROVED_BY}-"
    )
    for body in (annotated(approved_by="bob"), annotated(approved_by="bob", assignment="training")):
        assert patch(env, ALICE, CARD, body).sentence == sentence
    assert patch(env, ALICE, CARD, annotated(approved_by="alice", assignment="training")).admitted

    # A name of the past does not sign a new approval; the webhook, when it is there, writes the new one.
    assert patch(env, ("bob", ALICE[1]), CARD, annotated(approved_by="bob", assignment="training"), dry=False).admitted
    assert patch(env, ALICE, CARD, annotated(assignment="serving")).sentence == sentence
    assert patch(env, ALICE, CARD, annotated(assignment="serving", approved_by=None)).admitted
    assert patch(env, ALICE, CARD, annotated(hold="x")).admitted, "what is no approval needs no name"
    assert patch(env, OURS, CARD, annotated(assignment=None)).admitted, "the controller withdraws approvals"
