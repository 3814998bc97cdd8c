"""Runtime classes, and metrics of the operator itself: what is there of a state without pods."""

from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.operator.stack.manifest import assets
from gpu_control_plane.operator.stack.operands import operator_metrics, prerequisites
from gpu_control_plane.operator.stack.render import render_state
from unit.operator.stack.container_builders import CDI_OFF, NAMESPACE, NRI, OPENSHIFT, objects, of_kind, render_input

CHART = Path(__file__).parents[4] / "charts" / "gpu-control-plane" / "templates"


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({}, ["nvidia", "nvidia-legacy", "nvidia-cdi"]),
        ({"operator": {"runtimeClass": "cards"}}, ["cards", "nvidia-legacy", "nvidia-cdi"]),
        ({"operator": {"runtimeClass": "nvidia-cdi"}}, ["nvidia-cdi", "nvidia-legacy"]),
        ({"operator": {"runtimeClass": ""}}, ["nvidia", "nvidia-legacy", "nvidia-cdi"]),
        (CDI_OFF, ["nvidia"]),
        ({**CDI_OFF, "operator": {"runtimeClass": "cards"}}, ["cards"]),
    ],
)
def test_runtime_classes(sections: dict[str, Any], names: list[str]) -> None:
    made = objects(prerequisites.STATE, render_input(**sections))
    assert [held["metadata"]["name"] for held in made] == names
    assert [held["handler"] for held in made] == names
    assert all("namespace" not in held["metadata"] for held in made)


def test_with_nri_there_are_no_runtime_classes() -> None:
    rendered = render_state(prerequisites.STATE, render_input(**NRI))
    assert (rendered.enabled, rendered.manifests) == (False, ())


def test_the_service_of_the_operator_selects_pods_of_the_controller() -> None:
    """The chart writes the labels; they are repeated here, so a change there must be noticed."""
    (service,) = of_kind(operator_metrics.STATE, render_input(), "Service")
    assert service["metadata"]["name"] == "gpu-operator"
    assert service["spec"]["ports"][0]["port"] == service["spec"]["ports"][0]["targetPort"] == 8080
    template = "".join(file.read_text() for file in CHART.glob("_*.tpl"))
    name, component = service["spec"]["selector"].items()
    assert f"{name[0]}: {name[1]}\n" in template
    assert f"{component[0]}: {{{{ index . 1 }}}}" in template
    deployment = (CHART / "controller" / "deployment.yaml").read_text()
    assert f'(list . "{component[1]}")' in deployment
    assert "containerPort: 8080" in deployment


@pytest.mark.parametrize(
    ("metrics", "there"),
    [
        (None, True),
        ({}, True),
        ({"serviceMonitor": {"enabled": True}}, True),
        ({"serviceMonitor": {"enabled": False}}, False),
    ],
)
def test_the_operator_is_scraped_unless_the_policy_says_no(metrics: dict[str, Any] | None, *, there: bool) -> None:
    scene = render_input(operator={"metrics": metrics})
    assert bool(of_kind(operator_metrics.STATE, scene, "ServiceMonitor")) is there
    unknown = render_input(service_monitors=False, operator={"metrics": metrics})
    assert not of_kind(operator_metrics.STATE, unknown, "ServiceMonitor")


def test_scraping_of_the_operator_is_as_the_policy_says() -> None:
    wanted = {"interval": "30s", "additionalLabels": {"release": "prometheus"}}
    scene = render_input(operator={"metrics": {"serviceMonitor": wanted}})
    (monitor,) = of_kind(operator_metrics.STATE, scene, "ServiceMonitor")
    (service,) = of_kind(operator_metrics.STATE, scene, "Service")
    assert monitor["spec"]["endpoints"] == [{"port": "gpu-operator-metrics", "path": "/metrics", "interval": "30s"}]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_on_openshift_its_prometheus_may_look_here() -> None:
    scene = render_input(openshift=OPENSHIFT)
    (binding,) = of_kind(operator_metrics.STATE, scene, "RoleBinding")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring"}
    ]
    assert binding["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("state-operator-metrics", "nvidia-gpu-operator-metrics"),
        ("state-dcgm-exporter", "nvidia-dcgm-exporter"),
        ("state-node-status-exporter", "nvidia-node-status-exporter-alerts"),
    ],
)
def test_on_openshift_there_are_rules_for_prometheus(state: str, name: str) -> None:
    (rules,) = [held for held in assets(state, openshift=True) if held["kind"] == "PrometheusRule"]
    assert rules["metadata"]["name"] == name
    for rule in rules["spec"]["groups"][0]["rules"]:
        assert ("alert" in rule) != ("record" in rule)
        assert rule["expr"]
