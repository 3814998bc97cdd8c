"""The chart brings rules, dashboards and monitors where values ask for them, and real CRDs accept them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from monitoring.alerts.groups import ALERTS
from monitoring.dashboards.all import DASHBOARDS
from monitoring.generate import RULES
from monitoring.promql import AGENT, CONTROLLER

from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.progress import Quiet
from helm.chart import NAMESPACE, Helm, Objects
from monitoring.conftest import cannot
from monitoring.operator_crds import operator_crds

ON: Final[dict[str, Any]] = {
    "monitoring": {
        "prometheusRules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "labels": {"team": "gpu"}},
        "serviceMonitors": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    }
}
KINDS: Final = ("PrometheusRule", "ServiceMonitor", "PodMonitor", "ConfigMap")
SERVERS: Final = (Component.ETCD, Component.APISERVER)


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> Objects:
    return helm.objects(ON)


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server that knows the Prometheus operator's kinds."""
    try:
        crds = operator_crds()
    except BuildFailed as why:
        cannot(str(why))
    folder = tmp_path_factory.mktemp("chart")
    with Cluster(folder, ensure_binaries([*SERVERS, "kubectl"]), Settings(components=SERVERS), Quiet()) as cluster:
        _kubectl(cluster, "create", "namespace", NAMESPACE)
        _kubectl(cluster, "apply", "--server-side", *(f"--filename={crd}" for crd in crds))
        _kubectl(cluster, "wait", "--for=condition=Established", *(f"--filename={crd}" for crd in crds))
        yield cluster


def test_nothing_comes_unasked(helm: Helm) -> None:
    assert not [each for each in helm.objects().of(*KINDS) if _ours(each)]


@pytest.mark.parametrize(
    ("part", "kinds"),
    [
        ("prometheusRules", {"PrometheusRule"}),
        ("dashboards", {"ConfigMap"}),
        ("serviceMonitors", {"ServiceMonitor", "PodMonitor"}),
    ],
)
def test_each_part_comes_by_itself(helm: Helm, part: str, kinds: set[str]) -> None:
    found = helm.objects({"monitoring": {part: {"enabled": True}}})
    assert {each["kind"] for each in found.of(*KINDS) if _ours(each)} == kinds


def test_the_rules_are_those_that_were_tested(rendered: Objects) -> None:
    rule = rendered.one("PrometheusRule", "gpu-control-plane")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_runbooks_get_an_address(helm: Helm) -> None:
    values = {"monitoring": {"prometheusRules": {"enabled": True, "runbookUrl": "https://git.example/main/"}}}
    groups = helm.objects(values).one("PrometheusRule", "gpu-control-plane")["spec"]["groups"]
    urls = {rule["alert"]: rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert urls == {alert.name: f"https://git.example/main/{alert.runbook}" for alert in ALERTS}


def test_dashboards_are_those_that_were_tested_and_the_sidecar_finds_them(rendered: Objects) -> None:
    maps = [each for each in rendered.of("ConfigMap") if _ours(each)]
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)
    assert all(each["metadata"]["labels"]["team"] == "gpu" for each in maps)
    files = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    assert files == {f"{board.name}.json": board.json() for board in DASHBOARDS}


def test_monitors_select_our_pods_and_their_port(rendered: Objects) -> None:
    service = rendered.one("Service", CONTROLLER)
    monitor = rendered.one("ServiceMonitor", CONTROLLER)["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]
    pod = rendered.pod("agent")
    (endpoint,) = rendered.one("PodMonitor", AGENT)["spec"]["podMetricsEndpoints"]
    labels = rendered.one("PodMonitor", AGENT)["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert endpoint["port"] in [port["name"] for each in pod["spec"]["containers"] for port in each["ports"]]
    assert endpoint["interval"] == "15s"


def test_jobs_have_the_names_that_alerts_ask_for(rendered: Objects) -> None:
    """Without another word the operator takes the name of the Service."""
    assert "jobLabel" not in rendered.one("ServiceMonitor", CONTROLLER)["spec"]
    (endpoint,) = rendered.one("PodMonitor", AGENT)["spec"]["podMetricsEndpoints"]
    assert {"targetLabel": "job", "replacement": AGENT} in endpoint["relabelings"]


def test_a_cluster_with_the_real_crds_takes_them(api_server: Cluster, rendered: Objects, tmp_path: Path) -> None:
    ours = [each for each in rendered.of(*KINDS) if _ours(each)]
    assert len(_taken(api_server, ours, tmp_path)) == 3 + len(DASHBOARDS)


def test_it_takes_the_monitor_of_dcgms_exporter(api_server: Cluster, helm: Helm, tmp_path: Path) -> None:
    exporter = {"enabled": True, "image": "registry.example/exporter:v1", "serviceMonitor": {"enabled": True}}
    monitors = helm.objects({"bootstrap": {"dcgmExporter": exporter}}).of("ServiceMonitor")
    assert len(_taken(api_server, monitors, tmp_path)) == 1


def _taken(cluster: Cluster, objects: list[dict[str, Any]], folder: Path) -> list[str]:
    """The names of those that the API server would make, field by field."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    output = _kubectl(cluster, "create", "--validate=strict", "--dry-run=server", "--output=name", f"--filename={file}")
    return output.split()


def _ours(each: dict[str, Any]) -> bool:
    return bool(each["metadata"]["labels"]["app.kubernetes.io/component"] == "monitoring")


def _kubectl(cluster: Cluster, *arguments: str) -> str:
    kubectl = ensure_binaries(["kubectl"]).path("kubectl")
    command = [str(kubectl), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
