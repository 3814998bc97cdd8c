"""What Argo CD and Kustomize would apply: taken by a real API server, and left alone by a second look.

Argo CD itself does not run here. It renders with `helm template`, runs Helm's hooks as its own, and applies the rest
by server-side apply as the field manager argocd-controller; all of that is done here by the same means.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from blocking_wait import until
from gpu_control_plane.api import DEFINITIONS, nvidia, ray
from gpu_control_plane.gitops.applications import written_by_controllers
from gpu_control_plane.local import Binaries, Component
from helm.chart import CHART, NAMESPACE, Helm, Manifest, Objects, command_of
from helm.conftest import cluster_for
from helm.installed import Installed, Program

EXAMPLE = Path(__file__).parents[2] / "examples/gitops"
STACK: Manifest = yaml.safe_load((EXAMPLE / "argocd/applications/gpu-control-plane.yaml").read_text())
VALUES: dict[str, Any] = STACK["spec"]["source"]["helm"]["valuesObject"]
PHASES = {"pre-install": "PreSync", "pre-upgrade": "PreSync", "post-delete": "PostDelete", "test": "none"}
"""What Argo CD makes of Helm's hooks, of those that every release of it since 2.10 knows."""
AS_ARGOCD = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-")
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-control-plane-webhook"
    for kind in ("validating", "mutating")
)
CRDS = {definition.name for definition in (*DEFINITIONS, *nvidia.DEFINITIONS, *ray.DEFINITIONS)}
IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An API server after the PreSync phase: the namespace as Argo CD makes it, and what the jobs have done."""
    with cluster_for(helm, tmp_path_factory.mktemp("gitops"), Component.ETCD, Component.APISERVER) as made:
        labels = STACK["spec"]["syncPolicy"]["managedNamespaceMetadata"]["labels"]
        made.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        for namespace in VALUES["ray"]["watchNamespace"]:
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        made.kubectl("create", "-f", "-", given=yaml.safe_dump(_of_volcano()))
        made.run_hook("install-crds", VALUES)
        made.run_hook("declare", VALUES)
        yield made


def _of_volcano() -> Manifest:
    """The kind of Volcano that the controller watches, since the example's values name that scheduler for Ray."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> list[Manifest]:
    """Everything, as Argo CD renders it: the release is called as the Application."""
    options = ("--namespace", STACK["spec"]["destination"]["namespace"], "--kube-version", "1.36.0", "--include-crds")
    text = helm.run("template", STACK["metadata"]["name"], str(CHART), *options, values=VALUES)
    return Objects(yaml.safe_load_all(text)).all


def _phase(manifest: Manifest) -> str:
    hooks = manifest["metadata"].get("annotations", {}).get("helm.sh/hook")
    if hooks is None:
        return "Sync"
    (phase,) = {PHASES[hook] for hook in hooks.split(",")}
    return phase


def _synced(rendered: list[Manifest]) -> str:
    return yaml.safe_dump_all([each for each in rendered if _phase(each) == "Sync"])


def test_every_job_of_the_chart_has_its_place_in_a_sync(rendered: list[Manifest]) -> None:
    jobs = [each for each in rendered if each["kind"] == "Job"]
    waves = {each["metadata"]["name"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in jobs}
    phases = {each["metadata"]["name"]: _phase(each) for each in jobs}
    assert phases["gpu-control-plane-cleanup"] == "PostDelete"
    before = [name for name, phase in phases.items() if phase == "PreSync"]
    order = sorted(before, key=lambda name: waves[name])
    assert order.index("gpu-control-plane-install-crds") < order.index("gpu-control-plane-declare")
    # One hook of Argo CD's own, and it would ignore all of Helm's.
    assert [each for each in rendered if "argocd.argoproj.io/hook" in each["metadata"].get("annotations", {})] == []


def test_rights_of_a_job_come_in_an_earlier_wave_and_are_made_anew(rendered: list[Manifest]) -> None:
    for each in (each for each in rendered if _phase(each) in {"PreSync", "PostDelete"}):
        marks = each["metadata"]["annotations"]
        assert "before-hook-creation" in marks["helm.sh/hook-delete-policy"]
        job = f"gpu-control-plane-{each['metadata']['labels']['app.kubernetes.io/component']}"
        weight = next(
            other["metadata"]["annotations"]["helm.sh/hook-weight"]
            for other in rendered
            if other["kind"] == "Job" and other["metadata"]["name"] == job
        )
        assert each["kind"] == "Job" or int(marks["helm.sh/hook-weight"]) < int(weight)


def test_the_overlay_of_kustomize_is_taken_by_the_api_server(cluster: Installed, tools: Binaries) -> None:
    overlay = EXAMPLE / "kustomize/overlays/production"
    build = ("kustomize", "--enable-helm", "--helm-command", str(tools.path("helm")), str(overlay))
    text = cluster.kubectl(*build)
    objects = Objects(yaml.safe_load_all(text))
    assert objects.one("Deployment", "gpu-control-plane-controller")["spec"]["replicas"] == 3
    assert objects.of("Job") == []
    assert {each["metadata"]["name"] for each in objects.of("CustomResourceDefinition")} == CRDS
    answer = cluster.kubectl("apply", "--dry-run=server", *AS_ARGOCD, given=text)
    assert len(answer.splitlines()) == len(objects.all)


def test_what_controllers_write_is_no_difference_and_survives_a_sync(
    cluster: Installed, helm: Helm, rendered: list[Manifest], tmp_path: Path
) -> None:
    cluster.kubectl("apply", *AS_ARGOCD, given=_synced(rendered))
    _python, *command = command_of(helm.objects(VALUES).pod("controller"))
    command = [each.replace("$(POD_NAME)", "test") for each in command]
    account = cluster.account("gpu-control-plane-controller")
    with Program([*command, "--status-port=0", "--webhook-port=0"], account, tmp_path / "controller.log"):
        until(lambda: _written(cluster))
    before = _written(cluster)
    assert _difference(cluster, _synced(rendered)) == ""
    cluster.kubectl("apply", *AS_ARGOCD, given=_synced(rendered))
    assert _written(cluster) == before

    # A change by hand is seen, so that the look above means something.
    cluster.kubectl("-n", NAMESPACE, "scale", "deployment/gpu-control-plane-controller", "--replicas=7")
    assert "replicas: 7" in _difference(cluster, _synced(rendered))


def test_every_ignored_field_is_one_of_an_object_of_the_chart(rendered: list[Manifest]) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in rendered}
    assert {(each["kind"], each["name"]) for each in written_by_controllers()} <= there


def test_pools_of_the_example_are_taken_and_stay_as_they_are(cluster: Installed) -> None:
    for path in WEBHOOKS:  # the Service leads nowhere here
        if cluster.exists(path):
            cluster.request("DELETE", path)
    text = "---\n".join(path.read_text() for path in sorted((EXAMPLE / "argocd/pools").glob("*.yaml")))
    cluster.kubectl("apply", *AS_ARGOCD, given=text)
    assert _difference(cluster, text) == ""


def _written(cluster: Installed) -> list[object]:
    """What the controller writes into objects of the chart; empty while something is missing."""
    webhooks = [webhook for path in WEBHOOKS for webhook in cluster.request("GET", path)["webhooks"]]
    secret = cluster.request("GET", f"{IN_NAMESPACE}/secrets/gpu-control-plane-webhook").get("data")
    lease = cluster.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpu-control-plane")[
        "spec"
    ]
    bundles = [webhook["clientConfig"].get("caBundle") for webhook in webhooks]
    found: list[object] = [secret, lease.get("leaseDurationSeconds"), *bundles]
    return found if all(found) else []


def _difference(cluster: Installed, text: str) -> str:
    """What a sync would change, by a dry run of it; empty if nothing."""
    done = subprocess.run(
        [cluster.program, "--kubeconfig", cluster.cluster.kubeconfig, "diff", *AS_ARGOCD],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout
