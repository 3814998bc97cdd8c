"""The operator can do its work with the rights the chart gives the controller, and can change nothing of others.

Operands have a namespace of their own here, so that a right in the wrong namespace is missed.
"""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Client, Resource, load_config
from gpu_control_plane.operator.stack.live import CORE_KINDS, OPTIONAL_KINDS, Live
from gpu_control_plane.operator.stack.manifest import Manifest, assets, set_namespace
from gpu_control_plane.operator.stack.operands import STATES
from helm.chart import NAMESPACE, OPERANDS, Helm, command_of
from helm.conftest import cluster_for
from helm.installed import Installed, Program
from integration.stack.operator_env import gpu_node
from unit.api.nvidia.stock import stock_driver, stock_policy
from waiting import until, until_async

pytestmark = pytest.mark.timeout(600)

CONTROLLER = "gpu-control-plane-controller"
VALUES: dict[str, Any] = {
    "operator": {"namespace": OPERANDS},
    "clusterPolicy": {"create": True, "spec": stock_policy()["spec"]},
}
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
DRIVER = "/apis/nvidia.com/v1alpha1/nvidiadrivers/default"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
MERGE = "application/merge-patch+json"
GRANTS = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


@pytest.fixture(scope="module")
def stack(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A cluster with the release, a namespace for operands, a ClusterPolicy and Prometheus' CRDs."""
    with cluster_for(helm, tmp_path_factory.mktemp("stack")) as made:
        made.add_nodes()
        # They are for the chart's own pods: without labels of their system, no driver is for them.
        made.kubectl("label", "nodes", "--all", f"{NodeLabel.OPERANDS}=false")
        made.request("POST", "/api/v1/namespaces", {"metadata": {"name": OPERANDS}})
        made.kubectl("create", "-f", "-", given=yaml.safe_dump(_service_monitors()))
        made.install(VALUES)
        yield made


@pytest.fixture
async def client(stack: Installed) -> AsyncIterator[Client]:
    async with Client(load_config(stack.cluster.kubeconfig)) as client:
        yield client


def as_controller(stack: Installed, *arguments: str, given: str = "") -> str:
    return stack.kubectl("--kubeconfig", str(stack.account(CONTROLLER)), *arguments, given=given)


def controller(stack: Installed, helm: Helm, folder: Path) -> Program:
    """The controller as the chart starts it, with the rights that it gives it."""
    command = [each.replace("$(POD_NAME)", "test") for each in command_of(helm.objects(VALUES).pod("controller"))[1:]]
    ports = ["--status-port=0", "--webhook-port=0"]
    return Program([*command, *ports], stack.account(CONTROLLER), folder / "controller.log")


def test_the_controller_can_grant_every_role_of_the_assets(stack: Installed) -> None:
    """Under other names, so that this does not depend on what else is in the cluster."""
    grants = [grant for state in STATES for grant in assets(state.name, openshift=True) if grant["kind"] in GRANTS]
    grants = [_renamed(grant) for grant in grants if "rules" in grant or "roleRef" in grant]
    grants.sort(key=lambda grant: GRANTS.index(grant["kind"]))
    given = yaml.safe_dump_all(grants)
    made = as_controller(stack, "create", "-f", "-", given=given)
    assert len(made.splitlines()) == len(grants) > 60
    as_controller(stack, "delete", "--wait=false", "-f", "-", given=given)


def test_more_cannot_be_granted(stack: Installed) -> None:
    """Otherwise the test above could not fail."""
    more = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [more]}
    with pytest.raises(AssertionError, match="attempting to grant RBAC permissions not currently held"):
        as_controller(stack, "create", "-f", "-", given=yaml.safe_dump(role | {"metadata": _meta("nvidia-more")}))


@pytest.mark.parametrize("kind", [*CORE_KINDS, *OPTIONAL_KINDS], ids=lambda kind: kind.resource.plural)
def test_all_objects_of_a_kind_that_operands_consist_of_may_be_seen(stack: Installed, kind: type[Live]) -> None:
    """Also those without our label, in the operands' namespace: another operator's are taken over."""
    namespace = OPERANDS if kind.resource.namespaced else ""
    assert all(_is_allowed(stack, verb, kind.resource, namespace) for verb in ("list", "watch"))


async def test_the_operator_needs_no_more_rights(stack: Installed, helm: Helm, client: Client, tmp_path: Path) -> None:
    """From the values to running operands, through drift and changes of mind: nothing is forbidden on the way."""
    output = stack.run_hook("declare", VALUES)
    assert output == "ClusterPolicy cluster-policy: created\n"
    await client.create(Node, gpu_node("with-cards"))
    with controller(stack, helm, tmp_path):
        await until_async(lambda: _works(client), saying="the stack works", within=180)
        monitors = f"/apis/monitoring.coreos.com/v1/namespaces/{OPERANDS}/servicemonitors"
        await until(lambda: _exists(stack, monitors), saying="it is scraped")

        stack.request("PATCH", f"{ROLES}/nvidia-driver", {"rules": []}, MERGE)
        await until(lambda: stack.request("GET", f"{ROLES}/nvidia-driver")["rules"], saying="the role is mended")
        account = f"/api/v1/namespaces/{OPERANDS}/serviceaccounts/nvidia-driver"
        stack.request("PATCH", account, {"metadata": {"labels": {"gpu.deckhouse.io/operand": "nobody"}}}, MERGE)
        await until(lambda: _operand(stack, account) == "state-driver", saying="the account is mended")

        changes = {"operator": {"runtimeClass": "cards"}, "dcgmExporter": {"enabled": False}}
        stack.request("PATCH", POLICY, {"spec": changes}, MERGE)
        await until(lambda: stack.exists(f"{CLASSES}/cards"), saying="the runtime class has its new name")
        await until(lambda: not stack.exists(f"{ROLES}/nvidia-dcgm-exporter-read-pods"), saying="the exporter is gone")
        await until(lambda: "nvidia-dcgm-exporter" not in _operands(stack), saying="nothing of the exporter is left")
        stack.request("PATCH", POLICY, {"spec": {"operator": {"runtimeClass": "nvidia"}}}, MERGE)
        await until(lambda: not stack.exists(f"{CLASSES}/cards"), saying="the runtime class has its old name")
        status = await client.get(StoredClusterPolicy, "cluster-policy")
        assert "forbidden" not in repr(status.status)


async def test_drivers_and_their_upgrades_need_no_more_rights(
    stack: Installed, helm: Helm, client: Client, tmp_path: Path
) -> None:
    """An NVIDIADriver from the values, a namespace marked for it, and a new driver on a node whose card is in use."""
    policy, driver = stock_policy()["spec"], stock_driver()["spec"]
    policy["driver"]["useNvidiaDriverCRD"] = True
    policy["psa"] = {"enabled": True}
    driver["upgradePolicy"]["podDeletion"]["force"] = True
    values = {
        **VALUES,
        "clusterPolicy": {"create": True, "spec": policy},
        "nvidiaDriver": {"create": True, "spec": driver},
    }
    stack.run_hook("declare", values)
    if not stack.exists("/api/v1/nodes/with-cards"):
        await client.create(Node, gpu_node("with-cards"))
    with controller(stack, helm, tmp_path):
        await until(lambda: _driver_pods(stack, "595.91.07"), saying="the driver is there", within=120)
        await until(lambda: "privileged" in _labels(stack, f"/api/v1/namespaces/{OPERANDS}").values())
        await until(lambda: _upgrade(stack) == "upgrade-done", saying="the node is as it should be")

        stack.kubectl("create", "-f", "-", given=yaml.safe_dump(_user_of_cards()))
        stack.request("PATCH", DRIVER, {"spec": {"version": "600.10.01"}}, MERGE)
        await until(
            lambda: not stack.exists("/api/v1/namespaces/default/pods/user"), saying="it is evicted", within=120
        )
        await until(lambda: _driver_pods(stack, "600.10.01"), saying="the new driver is there", within=120)
        await until(lambda: _upgrade(stack) == "upgrade-done", saying="the upgrade is over", within=120)
        found = await client.get(StoredNVIDIADriver, "default")
        assert "forbidden" not in repr(found.status)


def test_values_are_applied_again_over_what_others_wrote(stack: Installed) -> None:
    """The spec is the one of the values, to the last field; marks of others stay."""
    made = _declare(stack, VALUES["clusterPolicy"]["spec"])
    marks = {"metadata": {"annotations": {"team": "one"}, "labels": {"any": "thing"}}}
    edit = {"spec": {"dcgmExporter": {"enabled": False}, "psa": {"enabled": True}}}
    stack.request("PATCH", POLICY, {**marks, **edit}, MERGE)
    assert _declare(stack, VALUES["clusterPolicy"]["spec"])["spec"] == made["spec"]
    less = _declare(stack, {"mig": {"strategy": "mixed"}})
    assert less["spec"]["mig"] == {"strategy": "mixed"}
    assert "repository" not in less["spec"]["dcgmExporter"]
    assert less["metadata"]["annotations"]["team"] == "one"
    assert less["metadata"]["labels"]["any"] == "thing"
    assert less["metadata"]["uid"] == made["metadata"]["uid"]


def _declare(stack: Installed, spec: dict[str, Any]) -> Manifest:
    """The policy after the job has run with this spec; a second time nothing changes."""
    values = {**VALUES, "clusterPolicy": {"create": True, "spec": spec}}
    stack.run_hook("declare", values)
    found = stack.request("GET", POLICY)
    assert stack.run_hook("declare", values) == "ClusterPolicy cluster-policy: up to date\n"
    assert stack.request("GET", POLICY)["metadata"]["generation"] == found["metadata"]["generation"]
    return found


@pytest.mark.parametrize(
    "what",
    ["clusterrole/foreign", "clusterrolebinding/gpu-control-plane:controller", "runtimeclass/foreign"],
)
async def test_roles_of_others_are_not_the_controllers_business(stack: Installed, what: str) -> None:
    mine = {"metadata": {"name": "foreign"}}
    if not stack.exists(f"{CLASSES}/foreign"):
        stack.request("POST", CLASSES, mine | {"handler": "other"})
        stack.request("POST", ROLES, mine | {"rules": []})
    sentence = f"may change what belongs to operands only, and {what.split('/')[1]} does not"

    def refused(verb: str, *arguments: str) -> bool:
        try:
            as_controller(stack, verb, what, *arguments, "--dry-run=server")
        except AssertionError as why:
            return sentence in str(why)
        return False

    await until(lambda: refused("delete"), saying="the policy is in force")
    assert refused("label", "any=thing")


@pytest.mark.parametrize(
    "question",
    [
        "create pods --subresource=eviction -n default",
        f"delete pods -n {OPERANDS}",
        f"patch pods -n {OPERANDS}",
        f"watch controllerrevisions.apps -n {OPERANDS}",
        "patch nvidiadrivers.nvidia.com --subresource=status",
        "update nvidiadrivers.nvidia.com --subresource=finalizers",
        f"patch namespaces/{OPERANDS}",
        "watch leases.coordination.k8s.io/53822513.nvidia.com",
    ],
)
def test_what_upgrades_and_drivers_need_is_granted(stack: Installed, question: str) -> None:
    assert _may(stack, question)


@pytest.mark.parametrize(
    "question",
    [
        "delete pods -n default",
        "patch pods -n default",
        f"create daemonsets.apps -n {NAMESPACE}",
        f"create pods -n {NAMESPACE}",
        f"get secrets -n {OPERANDS}",
        "patch namespaces/default",
        "list leases.coordination.k8s.io",
        "create clusterpolicies.nvidia.com",
        "delete nvidiadrivers.nvidia.com",
        "patch customresourcedefinitions.apiextensions.k8s.io/servicemonitors.monitoring.coreos.com",
        "watch customresourcedefinitions.apiextensions.k8s.io/clusterpolicies.nvidia.com",
        "watch customresourcedefinitions.apiextensions.k8s.io/prometheusrules.monitoring.coreos.com",
        "escalate clusterroles.rbac.authorization.k8s.io",
        "bind clusterroles.rbac.authorization.k8s.io",
    ],
)
def test_what_the_operator_does_not_need_is_not_granted(stack: Installed, question: str) -> None:
    assert not _may(stack, question)


def test_secrets_are_asked_for_without_being_read_or_made(stack: Installed) -> None:
    asked = ("create", "secret", "generic", "of-a-driver", f"--namespace={OPERANDS}")
    as_controller(stack, *asked, "--dry-run=server")
    with pytest.raises(AssertionError, match="may create no Secret but its own, and of-a-driver is not"):
        as_controller(stack, *asked)


def _may(stack: Installed, question: str) -> bool:
    who = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}"
    command = ["--kubeconfig", str(stack.cluster.kubeconfig), "auth", "can-i", *question.split(), f"--as={who}"]
    done = subprocess.run([stack.program, *command], capture_output=True, text=True, check=False)
    answer = done.stdout.strip()
    assert answer in ("yes", "no"), done.stdout + done.stderr
    return answer == "yes"


def _is_allowed(stack: Installed, verb: str, resource: Resource, namespace: str) -> bool:
    """What the API server says of the controller's rights, also to a kind that it does not know."""
    asked = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}", "resourceAttributes": asked}}
    answer = stack.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"metadata": {}, **review})
    return bool(answer["status"]["allowed"])


async def _works(client: Client) -> bool:
    return (await client.get(StoredClusterPolicy, "cluster-policy")).status.state is State.READY


def _labels(stack: Installed, path: str) -> dict[str, str]:
    return msgspec.convert(stack.request("GET", path)["metadata"].get("labels", {}), dict[str, str])


def _operand(stack: Installed, path: str) -> str | None:
    return _labels(stack, path).get("gpu.deckhouse.io/operand")


def _upgrade(stack: Installed) -> str | None:
    return _labels(stack, "/api/v1/nodes/with-cards").get("nvidia.com/gpu-driver-upgrade-state")


def _driver_pods(stack: Installed, version: str) -> bool:
    """Whether the node has one driver, of this version."""
    query = "labelSelector=app.kubernetes.io%2Fcomponent%3Dnvidia-driver&fieldSelector=spec.nodeName%3Dwith-cards"
    pods = stack.request("GET", f"/api/v1/namespaces/{OPERANDS}/pods?{query}")["items"]
    images = [each["image"] for pod in pods for each in pod["spec"]["containers"]]
    return bool(images) and all(f":{version}" in image for image in images)


def _user_of_cards() -> Manifest:
    """A pod that is on the node without having been scheduled: the node offers no cards."""
    container = {"name": "it", "image": "example.com/it", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    meta = {"name": "user", "namespace": "default"}
    spec = {"nodeName": "with-cards", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _operands(stack: Installed) -> str:
    kinds = "daemonsets,services,serviceaccounts,roles,rolebindings,servicemonitors"
    return stack.kubectl("get", kinds, "-n", OPERANDS, "-o", "name")


def _exists(stack: Installed, path: str) -> bool:
    return bool(stack.request("GET", path)["items"])


def _meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": OPERANDS}


def _renamed(grant: Manifest) -> Manifest:
    """In the operands' namespace, with an ending that no operand has."""
    set_namespace(grant, OPERANDS)
    for part in (grant["metadata"], grant.get("roleRef", {})):
        if "name" in part:
            part["name"] = f"{part['name']}-trial"
    return grant


def _service_monitors() -> Manifest:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "ServiceMonitor", "plural": "servicemonitors"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": spec,
    }
