"""The roles that the chart brings for people: bound to nobody unless values say so."""

import yaml

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.installation.own_namespace import CONTROLLER_BINDING, own_namespace
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.kube.config import Impersonation
from helm.chart import ELSEWHERE, Helm
from helm.installed import Installed
from helm.rules import rules_of

READING = {"get", "list", "watch"}


def verbs(helm: Helm, role: str) -> dict[str, set[str]]:
    """What a role allows, by resource."""
    found: dict[str, set[str]] = {}
    for rule in rules_of(helm.objects({}).one("ClusterRole", role)):
        for resource in rule.resources:
            found.setdefault(resource, set()).update(rule.verbs)
    return found


def test_who_uses_pools_may_read_them_and_nothing_else(helm: Helm) -> None:
    assert verbs(helm, "gpu-pool-reader") == {"gpupools": READING}


def test_a_viewer_changes_nothing_and_reads_no_pods(helm: Helm) -> None:
    allowed = verbs(helm, "gpu-viewer")
    assert {"gpudevices", "gpunodestates", "gpupools", "gpuapprovals", "nodes"} <= allowed.keys()
    assert "pods" not in allowed
    assert all(each <= READING for each in allowed.values())


async def test_a_viewer_learns_where_our_programs_run_and_reads_no_other_binding(
    helm: Helm, api_server: Installed
) -> None:
    """From what no tenant can write; who may not read it is taken to mean the default namespace."""
    rendered = helm.objects(namespace=ELSEWHERE)
    bound = {
        "kind": "ClusterRoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "a-viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpu-viewer"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}],
    }
    ours = rendered.one("ClusterRoleBinding", CONTROLLER_BINDING)
    objects = yaml.safe_dump_all([rendered.one("ClusterRole", "gpu-viewer"), bound, ours])
    api_server.kubectl("apply", "-f", "-", given=objects)
    try:
        found = {user: await _namespace_for(api_server, user) for user in (None, "viewer", "stranger")}
        assert found == {None: ELSEWHERE, "viewer": ELSEWHERE, "stranger": DEFAULT_NAMESPACE}
        asked = api_server.kubectl("auth", "can-i", "get", "clusterrolebindings/a-viewer", "--as=viewer", failing=True)
        assert asked.strip() == "no"
    finally:
        api_server.kubectl("delete", "-f", "-", given=objects)
    assert await _namespace_for(api_server, None) == DEFAULT_NAMESPACE


async def _namespace_for(cluster: Installed, user: str | None) -> str:
    acting_as = Impersonation(user=user) if user is not None else None
    async with Client(load_config(cluster.cluster.kubeconfig, acting_as=acting_as)) as client:
        return await own_namespace(client)


def test_an_admin_writes_what_people_decide_and_not_what_controllers_report(helm: Helm) -> None:
    allowed = verbs(helm, "gpu-admin")
    assert allowed["gpudevices"] == {"patch", "update"}
    assert allowed["gpuapprovals"] == {"create", "delete", "patch", "update"}
    assert "gpunodestates" not in allowed
    assert not any("/status" in resource for resource in allowed)


def test_only_the_groups_named_in_values_may_read_pools(helm: Helm) -> None:
    ours = {"gpu-pool-reader", "gpu-viewer", "gpu-admin"}
    bound = {each["roleRef"]["name"] for each in helm.objects({}).of("ClusterRoleBinding")}
    assert not bound & ours
    objects = helm.objects({"access": {"poolReaders": ["system:authenticated"]}})
    (binding,) = [each for each in objects.of("ClusterRoleBinding") if each["roleRef"]["name"] in ours]
    assert binding["roleRef"]["name"] == "gpu-pool-reader"
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
