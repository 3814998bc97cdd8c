"""DCGM and its exporter: where the engine is, what of pods is shown, who scrapes, which metrics."""

from typing import Any

import pytest

from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST
from gpu_control_plane.operator.stack.operands import dcgm
from gpu_control_plane.operator.stack.operands.dcgm_exporter import STATE
from unit.operator.stack.container_builders import daemonset, env, mounts, objects, of_kind, render_input

POD_LABELS = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
POD_UID = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
ALLOWLIST = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
ENGINE = "DCGM_REMOTE_HOSTENGINE_INFO"


def exporter(**section: Any) -> dict[str, Any]:
    return {"dcgmExporter": section}


def says(**variables: str) -> dict[str, Any]:
    return exporter(env=[{"name": name, "value": value} for name, value in variables.items()])


def test_the_engine_listens_where_its_service_sends() -> None:
    (service,) = of_kind(dcgm.STATE, render_input(), "Service")
    assert service["spec"]["ports"][0]["port"] == 5555
    assert service["spec"]["internalTrafficPolicy"] == "Local"
    made = daemonset(dcgm.STATE, render_input())
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert made.main.manifest[probe]["tcpSocket"]["port"] == 5555
        assert made.main.manifest[probe]["initialDelaySeconds"] == 15


def test_stock_values() -> None:
    made = daemonset(STATE, render_input())
    assert (
        env(made).items()
        >= {
            "DCGM_EXPORTER_LISTEN": ":9400",
            "DCGM_EXPORTER_KUBERNETES": "true",
            "DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
        }.items()
    )
    assert mounts(made) == {"/var/lib/kubelet/pod-resources": "/var/lib/kubelet/pod-resources"}
    assert made.pod["automountServiceAccountToken"] is False
    assert "hostPID" not in made.pod
    for probe in ("livenessProbe", "readinessProbe"):
        assert made.main.manifest[probe]["httpGet"] == {"path": "/health", "port": 9400}
        assert made.main.manifest[probe]["initialDelaySeconds"] == 45


@pytest.mark.parametrize(
    ("sections", "engine", "host_network"),
    [
        ({"dcgm": {"enabled": True}}, "nvidia-dcgm:5555", False),
        ({"dcgm": {"enabled": None}}, "nvidia-dcgm:5555", False),
        ({"dcgm": {"enabled": False}}, None, False),
        ({"dcgm": {"enabled": False}, **says(**{ENGINE: "localhost:5555"})}, "localhost:5555", True),
        ({"dcgm": {"enabled": False}, **says(**{ENGINE: "engine:5555"})}, "engine:5555", False),
    ],
)
def test_where_the_engine_is(sections: dict[str, Any], engine: str | None, *, host_network: bool) -> None:
    made = daemonset(STATE, render_input(**sections))
    assert env(made).get(ENGINE) == engine
    assert bool(made.pod.get("hostNetwork")) is host_network


@pytest.mark.parametrize(
    ("sections", "told", "reads_pods", "token"),
    [
        ({}, {}, False, False),
        (exporter(enablePodLabels=True), {POD_LABELS: "true"}, True, True),
        (exporter(enablePodUID=True), {POD_UID: "true"}, True, True),
        (exporter(enablePodLabels=False, podLabelAllowlistRegex=["a", "b"]), {ALLOWLIST: "a,b"}, False, False),
        (says(**{POD_LABELS: "True"}), {POD_LABELS: "True"}, True, True),
        (says(**{POD_LABELS: "false"}), {POD_LABELS: "false"}, False, False),
        (says(DCGM_EXPORTER_CONFIGMAP_DATA="ns:metrics"), {}, False, True),
        (says(DCGM_EXPORTER_CONFIGMAP_DATA="none"), {}, False, False),
    ],
)
def test_pods_are_read_only_where_something_of_them_is_shown(
    sections: dict[str, Any], told: dict[str, str], *, reads_pods: bool, token: bool
) -> None:
    scene = render_input(**sections)
    made = daemonset(STATE, scene)
    assert env(made).items() >= told.items()
    assert {POD_LABELS, POD_UID, ALLOWLIST} & set(env(made)) == set(told)
    assert made.pod["automountServiceAccountToken"] is token
    roles = {held["metadata"]["name"] for held in objects(STATE, scene) if held["kind"].startswith("ClusterRole")}
    assert roles == ({"nvidia-dcgm-exporter-read-pods"} if reads_pods else set())


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (None, ("ClusterIP", None)),
        ({}, ("ClusterIP", None)),
        ({"internalTrafficPolicy": "Cluster"}, ("ClusterIP", "Cluster")),
        ({"type": "NodePort", "internalTrafficPolicy": "Local"}, ("NodePort", "Local")),
    ],
)
def test_the_service_is_as_people_want_it(service: dict[str, str] | None, expected: tuple[str, str | None]) -> None:
    (made,) = of_kind(STATE, render_input(**exporter(service=service)), "Service")
    assert (made["spec"]["type"], made["spec"].get("internalTrafficPolicy")) == expected
    assert made["spec"]["ports"][0]["port"] == 9400


def test_prometheus_scrapes_it_as_the_policy_says() -> None:
    rule = {"action": "replace", "targetLabel": "node"}
    wanted = {
        "enabled": True,
        "interval": "15s",
        "scrapeTimeout": "10s",
        "honorLabels": True,
        "additionalLabels": {"release": "prometheus"},
        "relabelings": [rule],
    }
    (monitor,) = of_kind(STATE, render_input(**exporter(serviceMonitor=wanted)), "ServiceMonitor")
    (service,) = of_kind(STATE, render_input(), "Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [
        {
            "port": service["spec"]["ports"][0]["name"],
            "path": "/metrics",
            "interval": "15s",
            "scrapeTimeout": "10s",
            "honorLabels": True,
            "relabelings": [rule],
        }
    ]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


@pytest.mark.parametrize("wanted", [None, {}, {"enabled": False}, {"interval": "15s"}])
def test_there_is_no_service_monitor_unless_the_policy_asks_for_one(wanted: dict[str, Any] | None) -> None:
    assert not of_kind(STATE, render_input(**exporter(serviceMonitor=wanted)), "ServiceMonitor")


def test_a_cluster_without_prometheus_gets_no_service_monitor() -> None:
    assert not of_kind(STATE, render_input(service_monitors=False), "ServiceMonitor")


def test_people_choose_metrics_and_an_edit_is_a_new_pod() -> None:
    def made(data: str) -> Any:
        chosen = {"metrics": {"dcgm-metrics.csv": data}}
        return daemonset(STATE, render_input(config_maps=chosen, **exporter(config={"name": "metrics"})))

    path = "/etc/dcgm-exporter/dcgm-metrics.csv"
    assert env(made(""))["DCGM_EXPORTER_COLLECTORS"] == path
    assert mounts(made(""))[path] == "metrics"
    digests = {made(data).template["metadata"]["annotations"][CONFIG_DIGEST] for data in ("", "x")}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("jobs", "folder"),
    [
        ({"enabled": True}, "/var/lib/dcgm-exporter/job-mapping"),
        ({"enabled": True, "directory": "/run/jobs"}, "/run/jobs"),
        ({"enabled": None, "directory": "/run/jobs"}, None),
        (None, None),
    ],
)
def test_jobs_of_a_batch_system(jobs: dict[str, Any] | None, folder: str | None) -> None:
    made = daemonset(STATE, render_input(**exporter(hpcJobMapping=jobs)))
    assert env(made).get("DCGM_HPC_JOB_MAPPING_DIR") == folder
    assert folder is None or mounts(made)[folder] == folder


def test_annotations_are_for_pods() -> None:
    made = daemonset(STATE, render_input(**exporter(annotations={"team": "ml"})))
    assert made.template["metadata"]["annotations"] == {"team": "ml"}
    assert "annotations" not in made.manifest["metadata"]


def test_it_may_see_the_processes_of_the_node() -> None:
    assert daemonset(STATE, render_input(**exporter(hostPID=True))).pod["hostPID"] is True


def test_the_folder_of_the_kubelet_can_be_elsewhere() -> None:
    made = daemonset(STATE, render_input(hostPaths={"kubeletRootDir": "/data/kubelet/"}))
    assert mounts(made)["/var/lib/kubelet/pod-resources"] == "/data/kubelet/pod-resources"
