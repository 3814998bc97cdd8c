"""What happens to every DaemonSet of the stack: the published rules for all of them, one by one."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import EnvVar, Operand, Resources
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind
from gpu_control_plane.operator.stack.common_settings import apply_common_settings
from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST, add_config_digest
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.images import ImageNotNamed
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.stack.transforms import add_pull_secrets, apply_operand_section
from gpu_control_plane.operator.stack.variants import Variant
from unit.api.nvidia.stock import stock_policy

BUILT_IN = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
VALIDATOR = "nvcr.io/nvidia/gpu-operator:v26.7.0"

MAIN_BY_DEFAULT = {"kubectl.kubernetes.io/default-container": "main"}


def _daemonset(name: str = "nvidia-thing", key: str = "app") -> DaemonSetManifest:
    return DaemonSetManifest(
        {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "selector": {"matchLabels": {key: name}},
                "template": {
                    "metadata": {"labels": {key: name, "app.kubernetes.io/part-of": "gpu-operator"}},
                    "spec": {
                        "priorityClassName": "system-node-critical",
                        "tolerations": BUILT_IN,
                        "initContainers": [
                            {
                                "name": "driver-validation",
                                "image": "validator",
                                "volumeMounts": [{"name": "driver-install-dir", "mountPath": "/run/nvidia/driver"}],
                            },
                            {"name": "toolkit-validation", "image": "validator"},
                        ],
                        "containers": [
                            {
                                "name": "main",
                                "image": "thing",
                                "args": ["run"],
                                "volumeMounts": [{"name": "driver-install-dir", "mountPath": "/driver-root"}],
                            },
                            {"name": "beside", "image": "thing"},
                        ],
                        "volumes": [
                            {"name": "host-root", "hostPath": {"path": "/"}},
                            {"name": "host-dev-char", "hostPath": {"path": "/dev/char"}},
                            {"name": "driver-install-dir", "hostPath": {"path": "/run/nvidia/driver"}},
                        ],
                    },
                },
            },
        }
    )


def _render_input(**sections: Any) -> RenderInput:
    spec = {**stock_policy()["spec"], **sections}
    return RenderInput(
        policy=msgspec.convert(spec, ClusterPolicySpec),
        platform=Platform(namespace="x", config_maps={"settings": {"a": "1"}}),
        kinds={NodeKind(): 1},
    )


def _finished(
    made: DaemonSetManifest | None = None,
    *,
    env: tuple[EnvVar, ...] = (),
    cards: bool = False,
    runtime: ContainerRuntime = ContainerRuntime.CONTAINERD,
    **sections: Any,
) -> DaemonSetManifest:
    made = made or _daemonset()
    apply_common_settings(made, _render_input(**sections), Variant(runtime=runtime), env=env, runtime_class=cards)
    return made


@pytest.mark.parametrize(
    ("common", "strategy"),
    [
        ({}, None),
        ({"updateStrategy": "RollingUpdate"}, None),
        ({"updateStrategy": "OnDelete"}, {"type": "OnDelete"}),
        ({"updateStrategy": "OnDelete", "rollingUpdate": {"maxUnavailable": "2"}}, {"type": "OnDelete"}),
        ({"rollingUpdate": {"maxUnavailable": ""}}, None),
        (
            {"rollingUpdate": {"maxUnavailable": "2"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
        ),
        (
            {"rollingUpdate": {"maxUnavailable": "25%"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        ),
    ],
)
def test_how_pods_are_replaced(common: dict[str, Any], strategy: dict[str, Any] | None) -> None:
    assert _finished(daemonsets=common).manifest["spec"].get("updateStrategy") == strategy


def test_drivers_are_never_replaced_by_a_rolling_update() -> None:
    common = {"rollingUpdate": {"maxUnavailable": "2"}}
    by_name = _finished(_daemonset("nvidia-driver-daemonset-5.14-rhel9"), daemonsets=common)
    assert "updateStrategy" not in by_name.manifest["spec"]
    careful = _daemonset()
    careful.manifest["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert _finished(careful, daemonsets=common).manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_what_is_said_for_all_takes_the_place_of_what_is_built_in() -> None:
    made = _finished(
        daemonsets={
            "priorityClassName": "gpus",
            "tolerations": [{"operator": "Exists"}],
            "podSecurityContext": {"fsGroup": 1},
        }
    )
    assert made.pod["priorityClassName"] == "gpus"
    assert made.pod["tolerations"] == [{"operator": "Exists"}]
    assert made.pod["securityContext"] == {"fsGroup": 1}


def test_what_the_policy_does_not_say_is_as_in_the_asset() -> None:
    made = _finished(daemonsets={})
    assert made.pod["priorityClassName"] == "system-node-critical"
    assert made.pod["tolerations"] == BUILT_IN
    assert "securityContext" not in made.pod


@pytest.mark.parametrize("key", ["app", "name"])
def test_labels_and_annotations_reach_daemonset_and_pod_without_breaking_selectors(key: str) -> None:
    labels = {key: "x", "app.kubernetes.io/part-of": "x", "team": "ml"}
    made = _finished(_daemonset(key=key), daemonsets={"labels": labels, "annotations": {"note": "a"}})
    assert made.manifest["metadata"]["labels"]["team"] == "ml"
    assert made.template["metadata"]["labels"] == {
        key: "nvidia-thing",
        "app.kubernetes.io/part-of": "gpu-operator",
        "team": "ml",
    }
    assert made.manifest["metadata"]["annotations"] == {"note": "a"}
    assert made.template["metadata"]["annotations"] == {"note": "a", **MAIN_BY_DEFAULT}


@pytest.mark.parametrize(
    ("annotations", "named"),
    [({}, "main"), ({"kubectl.kubernetes.io/default-container": "beside"}, "beside")],
    ids=["the operand", "a person's choice"],
)
def test_kubectl_is_told_which_of_several_containers_is_the_operand(annotations: dict[str, str], named: str) -> None:
    made = _finished(daemonsets={"annotations": annotations})
    assert made.template["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == named
    made = _daemonset()
    made.drop("beside")
    assert "annotations" not in _finished(made).template["metadata"]


@pytest.mark.parametrize("root", ["", "/"])
def test_the_root_of_the_host_is_usually_where_it_is(root: str) -> None:
    made = _finished(hostPaths={"rootFS": root})
    assert made.volume("host-root")["hostPath"]["path"] == "/"
    assert all(container.env("HOST_ROOT") is None for container in made.containers())


@pytest.mark.parametrize("root", ["/sysroot", "/sysroot/"])
def test_another_host_root_is_mounted_and_in_the_environment_of_all_containers(root: str) -> None:
    made = _finished(hostPaths={"rootFS": root})
    assert made.volume("host-root")["hostPath"]["path"] == "/sysroot"
    assert made.volume("host-dev-char")["hostPath"]["path"] == "/sysroot/dev/char"
    assert {container.env("HOST_ROOT") for container in made.containers()} == {"/sysroot"}


def test_a_host_root_inside_the_container_is_kept() -> None:
    made = _daemonset()
    made.main.set_env("HOST_ROOT", "/host")
    made.container("beside").set_env("HOST_ROOT", "/")
    _finished(made, hostPaths={"rootFS": "/sysroot"})
    assert made.main.env("HOST_ROOT") == "/host"
    assert made.container("beside").env("HOST_ROOT") == "/sysroot"


@pytest.mark.parametrize("folder", ["", "/run/nvidia/driver", "/run/nvidia/driver/"])
def test_the_driver_is_usually_where_its_container_puts_it(folder: str) -> None:
    made = _finished(hostPaths={"driverInstallDir": folder})
    assert made.volume("driver-install-dir")["hostPath"]["path"] == "/run/nvidia/driver"
    assert made.container("driver-validation").env("DRIVER_INSTALL_DIR") is None


def test_a_driver_elsewhere_is_looked_for_there() -> None:
    made = _finished(hostPaths={"driverInstallDir": "/home/kubernetes/driver"})
    assert made.volume("driver-install-dir")["hostPath"]["path"] == "/home/kubernetes/driver"
    check = made.container("driver-validation")
    assert check.manifest["volumeMounts"] == [{"name": "driver-install-dir", "mountPath": "/home/kubernetes/driver"}]
    assert check.env("DRIVER_INSTALL_DIR") == "/home/kubernetes/driver"
    assert check.env("DRIVER_INSTALL_DIR_CTR_PATH") == "/home/kubernetes/driver"
    assert made.main.manifest["volumeMounts"] == [{"name": "driver-install-dir", "mountPath": "/driver-root"}]
    assert made.main.env("DRIVER_INSTALL_DIR") is None


def _operand(**fields: Any) -> DaemonSetManifest:
    made = _daemonset()
    parts = {"repository": "r", "image": "i", "version": "1", **fields}
    apply_operand_section(made, Operand(**parts), _render_input(), image="THING_IMAGE")
    return made


def test_a_section_names_image_secrets_resources_arguments_and_network() -> None:
    made = _operand(
        image_pull_policy="Always",
        image_pull_secrets=("a", "b"),
        resources=Resources(limits={"memory": "1Gi"}, requests={"cpu": 2}),
        args=("loud",),
        host_network=True,
    )
    assert made.main.manifest["image"] == "r/i:1"
    assert made.main.manifest["imagePullPolicy"] == "Always"
    assert made.main.manifest["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": 2}}
    assert made.main.manifest["args"] == ["loud"]
    assert made.pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert (made.pod["hostNetwork"], made.pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert made.container("beside").manifest["image"] == "thing"


def test_a_section_that_says_little_changes_little() -> None:
    made = _operand(host_network=False)
    assert made.main.manifest["imagePullPolicy"] == "IfNotPresent"
    assert made.main.manifest["args"] == ["run"]
    assert "resources" not in made.main.manifest
    assert not {"imagePullSecrets", "hostNetwork", "dnsPolicy"} & made.pod.keys()


def test_several_containers_can_run_the_image() -> None:
    made = _daemonset()
    section = Operand(repository="r", image="i", version="1")
    apply_operand_section(made, section, _render_input(), image="THING_IMAGE", names=("main", "beside", "dropped"))
    assert [held["image"] for held in made.pod["containers"]] == ["r/i:1", "r/i:1"]


def test_an_image_that_cannot_be_named_names_the_daemonset() -> None:
    with pytest.raises(ImageNotNamed, match="nvidia-thing"):
        apply_operand_section(_daemonset(), Operand(), _render_input(), image="THING_IMAGE")


def test_a_secret_is_named_once() -> None:
    made = _daemonset()
    add_pull_secrets(made, "a", "a")
    add_pull_secrets(made, "b", "a")
    assert made.pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_containers_that_validate_follow_the_validators_section() -> None:
    section = {
        **stock_policy()["spec"]["validator"],
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["registry"],
        "resources": {"limits": {"cpu": "1"}},
        "driver": {"env": [{"name": "A", "value": "driver"}]},
        "toolkit": {"env": [{"name": "A", "value": "toolkit"}]},
        "env": [{"name": "B", "value": "not for steps"}],
    }
    made = _finished(validator=section)
    for name in ("driver", "toolkit"):
        step = made.container(f"{name}-validation")
        assert step.manifest["image"] == VALIDATOR
        assert step.manifest["imagePullPolicy"] == "Always"
        assert step.manifest["resources"] == {"limits": {"cpu": "1"}}
        assert step.manifest["securityContext"]["runAsUser"] == 0
        assert step.env("A") == name
        assert step.env("B") is None
    assert {"name": "registry"} in made.pod["imagePullSecrets"]
    assert made.main.manifest["image"] == "thing"


def test_what_people_write_comes_last() -> None:
    made = _finished(env=(EnvVar(name="HOST_ROOT", value="/mine"),), hostPaths={"rootFS": "/sysroot"})
    assert made.main.env("HOST_ROOT") == "/mine"
    assert made.container("beside").env("HOST_ROOT") == "/sysroot"


@pytest.mark.parametrize(
    ("cdi", "runtime", "name"),
    [
        ({"enabled": True}, ContainerRuntime.CONTAINERD, "nvidia"),
        ({"enabled": True}, ContainerRuntime.CRIO, "nvidia"),
        ({"enabled": False}, ContainerRuntime.CONTAINERD, "nvidia"),
        ({"enabled": False}, ContainerRuntime.DOCKER, "nvidia"),
        ({"enabled": False}, ContainerRuntime.CRIO, None),
        ({"enabled": True, "nriPluginEnabled": True}, ContainerRuntime.CONTAINERD, None),
    ],
)
def test_pods_that_need_cards_have_the_runtime_class(
    cdi: dict[str, bool], runtime: ContainerRuntime, name: str | None
) -> None:
    assert _finished(cards=True, runtime=runtime, cdi=cdi).pod.get("runtimeClassName") == name
    assert "runtimeClassName" not in _finished(cards=False, runtime=runtime, cdi=cdi).pod


def test_the_runtime_class_is_called_as_the_policy_says() -> None:
    assert _finished(cards=True, operator={"runtimeClass": "gpus"}).pod["runtimeClassName"] == "gpus"


def test_nri_is_asked_by_an_annotation_for_each_container() -> None:
    cdi = {"enabled": True, "nriPluginEnabled": True}
    assert _finished(cards=True, cdi=cdi).template["metadata"]["annotations"] == {
        "nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all",
        "nvidia.cdi.k8s.io/container.beside": "management.nvidia.com/gpu=all",
        **MAIN_BY_DEFAULT,
    }
    assert _finished(cards=False, cdi=cdi).template["metadata"]["annotations"] == MAIN_BY_DEFAULT


def _digest(content: dict[str, dict[str, str]], *names: str) -> str:
    made = _daemonset()
    render_input = msgspec.structs.replace(_render_input(), platform=Platform(namespace="x", config_maps=content))
    add_config_digest(made, render_input, *names)
    found: str = made.template["metadata"]["annotations"][CONFIG_DIGEST]
    return found


def test_an_edit_of_a_config_map_is_another_pod_and_nothing_else_is() -> None:
    before = _digest({"settings": {"a": "1", "b": "2"}, "other": {"x": "1"}}, "settings")
    assert before == _digest({"settings": {"b": "2", "a": "1"}, "other": {"x": "2"}}, "settings")
    assert before != _digest({"settings": {"a": "1", "b": "3"}}, "settings")
    assert before != _digest({"settings": {"a": "1"}}, "settings")
    assert before != _digest({}, "settings")
