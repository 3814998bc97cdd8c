"""The validator and the exporter of a node's state: the order of checks, and the settings of each."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.operator.node_facts import NodeKind
from gpu_control_plane.operator.stack.operands import node_status_exporter
from gpu_control_plane.operator.stack.operands.operator_validation import STATE
from unit.operator.stack.container_builders import (
    CDI_OFF,
    CONTAINERD,
    CRIO,
    DOCKER,
    NRI,
    OPENSHIFT,
    daemonset,
    daemonsets,
    env,
    mounts,
    of_kind,
    render_input,
)

GATE = "nvidia.com/gpu.deploy.operator-validator"
NAME = "nvidia-operator-validator"
STEPS = ["driver", "toolkit", "cuda", "plugin"]
WORKLOADS = ["cuda-validation", "plugin-validation"]


def test_checks_come_in_order_and_only_the_first_waits() -> None:
    made = daemonset(STATE, render_input())
    assert [held["name"] for held in made.pod["initContainers"]] == [f"{step}-validation" for step in STEPS]
    for step in STEPS:
        told = env(made, f"{step}-validation")
        assert told["COMPONENT"] == step
        assert told["WITH_WAIT"] == ("true" if step == "driver" else "false")


def test_every_check_leaves_its_file_on_the_host() -> None:
    for held in daemonset(STATE, render_input()).containers():
        (mount,) = [m for m in held.manifest["volumeMounts"] if m["mountPath"] == "/run/nvidia/validations"]
        assert mount["mountPropagation"] == "Bidirectional"


def test_the_files_go_with_the_pod() -> None:
    command = daemonset(STATE, render_input()).main.manifest["lifecycle"]["preStop"]["exec"]["command"]
    assert command == ["sh", "-c", "rm -f /run/nvidia/validations/*-ready"]


def test_the_check_of_the_driver_sees_the_host() -> None:
    assert (
        mounts(daemonset(STATE, render_input()), "driver-validation").items()
        >= {
            "/run/nvidia/driver": "/run/nvidia/driver",
            "/host": "/",
            "/host-dev-char": "/dev/char",
        }.items()
    )


@pytest.mark.parametrize("step", WORKLOADS)
def test_a_check_knows_how_to_start_a_pod(step: str) -> None:
    validator = {"imagePullPolicy": "Always", "imagePullSecrets": ["one", "two"]}
    told = env(daemonset(STATE, render_input(validator=validator, operator={"runtimeClass": "cards"})), step)
    assert told["VALIDATOR_IMAGE"] == "nvcr.io/nvidia/gpu-operator:v26.7.0"
    assert told["VALIDATOR_IMAGE_PULL_POLICY"] == "Always"
    assert told["VALIDATOR_IMAGE_PULL_SECRETS"] == "one,two"
    assert told["VALIDATOR_RUNTIME_CLASS"] == "cards"


@pytest.mark.parametrize("step", WORKLOADS)
def test_a_pod_without_runtime_class_starts_pods_without(step: str) -> None:
    assert "VALIDATOR_RUNTIME_CLASS" not in env(daemonset(STATE, render_input(**NRI)), step)
    assert "VALIDATOR_IMAGE_PULL_SECRETS" not in env(daemonset(STATE, render_input()), step)
    for made in daemonsets(STATE, render_input(CONTAINERD, CRIO, **CDI_OFF)):
        assert env(made, step).get("VALIDATOR_RUNTIME_CLASS") == made.pod.get("runtimeClassName")


@pytest.mark.parametrize(("strategy", "told"), [("mixed", "mixed"), ("none", "none"), (None, None)])
def test_the_check_of_the_plugin_knows_how_mig_is_offered(strategy: str | None, told: str | None) -> None:
    made = daemonset(STATE, render_input(mig={"strategy": strategy}))
    assert env(made, "plugin-validation").get("MIG_STRATEGY") == told
    assert env(made, "plugin-validation")["WITH_WORKLOAD"] == "false"


@pytest.mark.parametrize(("plugin", "checked"), [({"enabled": False}, False), ({"enabled": None}, True)])
def test_a_plugin_that_is_off_is_not_checked(plugin: dict[str, Any], *, checked: bool) -> None:
    assert daemonset(STATE, render_input(devicePlugin=plugin)).has("plugin-validation") is checked


def served(kind: NodeKind) -> NodeKind:
    """A node of this kind whose cards our agent hands out."""
    return msgspec.structs.replace(kind, agent=True)


@pytest.mark.parametrize("kinds", [(CONTAINERD, served(CONTAINERD)), (served(CONTAINERD),)], ids=["mixed", "only"])
def test_where_the_agent_hands_out_cards_no_device_plugin_is_waited_for(kinds: tuple[NodeKind, ...]) -> None:
    plain, ours = daemonsets(STATE, render_input(*kinds))
    assert plain.manifest == daemonset(STATE, render_input()).manifest
    assert ours.name == f"{NAME}-agent"
    assert (plain.pod["nodeSelector"], ours.pod["nodeSelector"]) == ({GATE: "true"}, {GATE: "agent"})
    assert [held["name"] for held in ours.pod["initContainers"]] == [f"{step}-validation" for step in STEPS[:-1]]
    assert plain.has("plugin-validation")
    same = ("serviceAccountName", "runtimeClassName", "tolerations", "containers", "volumes")
    assert [ours.pod[field] for field in same] == [plain.pod[field] for field in same]


def test_its_pods_are_found_as_those_of_any_validator_and_kept_apart_from_them() -> None:
    plain, ours = (made.manifest["spec"] for made in daemonsets(STATE, render_input(CONTAINERD, served(CONTAINERD))))
    labels = ours["template"]["metadata"]["labels"]
    assert labels["app"] == NAME
    assert plain["selector"]["matchLabels"].items() <= ours["selector"]["matchLabels"].items() <= labels.items()
    assert not ours["selector"]["matchLabels"].items() <= plain["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ((CONTAINERD, CRIO), {"": "containerd", "-crio": "crio"}),
        ((CONTAINERD, NodeKind(), served(CRIO)), {"": "containerd", "-crio": "crio", "-crio-agent": "crio"}),
        ((CONTAINERD, served(CONTAINERD), CRIO), {"": "containerd", "-agent": "containerd", "-crio": "crio"}),
        ((served(CONTAINERD), served(DOCKER)), {"": None, "-agent": None}),
    ],
)
def test_each_runtime_class_has_one_only_where_there_are_such_nodes(
    kinds: tuple[NodeKind, ...], names: dict[str, str | None]
) -> None:
    made = daemonsets(STATE, render_input(*kinds, **CDI_OFF))
    runtime = "gpu.deckhouse.io/container-runtime"
    assert {held.name.removeprefix(NAME): held.pod["nodeSelector"].get(runtime) for held in made} == names
    assert {held.name for held in made if held.pod["nodeSelector"][GATE] == "agent"} == {
        held.name for held in made if held.name.endswith("-agent")
    }


@pytest.mark.parametrize("step", STEPS)
def test_people_tell_each_check_something(step: str) -> None:
    said = {"env": [{"name": "WITH_WAIT", "value": "maybe"}, {"name": "EXTRA", "value": step}]}
    made = daemonset(STATE, render_input(validator={step: said}))
    assert env(made, f"{step}-validation").items() >= {"WITH_WAIT": "maybe", "EXTRA": step}.items()
    assert all("EXTRA" not in env(made, f"{other}-validation") for other in STEPS if other != step)


def test_with_nri_the_check_of_the_toolkit_is_given_cards() -> None:
    annotations = daemonset(STATE, render_input(**NRI)).template["metadata"]["annotations"]
    assert annotations["nvidia.cdi.k8s.io/container.toolkit-validation"] == "management.nvidia.com/gpu=all"


def test_it_is_the_checker_that_upgrades_look_for() -> None:
    labels = {"app": "nvidia-operator-validator", "app.kubernetes.io/part-of": "gpu-operator"}
    assert daemonset(STATE, render_input()).manifest["spec"]["selector"]["matchLabels"] == labels


def test_the_exporter_of_the_node_only_looks() -> None:
    made = daemonset(node_status_exporter.STATE, render_input())
    assert env(made).items() >= {"COMPONENT": "metrics", "METRICS_PORT": "8000"}.items()
    assert "initContainers" not in made.pod
    assert mounts(made) == {"/run/nvidia": "/run/nvidia", "/host": "/"}
    (service,) = of_kind(node_status_exporter.STATE, render_input(), "Service")
    assert service["spec"]["ports"][0]["port"] == 8000
    assert service["spec"]["selector"].items() <= made.template["metadata"]["labels"].items()


def test_the_exporter_of_the_node_is_scraped_where_prometheus_is() -> None:
    (monitor,) = of_kind(node_status_exporter.STATE, render_input(), "ServiceMonitor")
    (service,) = of_kind(node_status_exporter.STATE, render_input(), "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert not of_kind(node_status_exporter.STATE, render_input(service_monitors=False), "ServiceMonitor")


def test_without_the_check_there_is_no_variant_for_the_plugin() -> None:
    (rules,) = of_kind(node_status_exporter.STATE, render_input(openshift=OPENSHIFT), "PrometheusRule")
    (rule,) = [held for held in rules["spec"]["groups"][0]["rules"] if held["alert"] == "GPUsNotOfferedOnNode"]
    assert "gpu_operator_node_plugin_ready == 1" in rule["expr"]
