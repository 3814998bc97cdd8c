"""The objects of an NVIDIADriver."""

from typing import Any

import pytest

from gpu_control_plane.operator.drivers.names import short_hash
from gpu_control_plane.operator.drivers.owner import ParsedDriver
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform, RenderError
from unit.operator.drivers.builders import NAMESPACE, driver, node
from unit.operator.stack.driver_builders import mounts, policy

MANAGER = "k8s-driver-manager"
NODES = [node("n1", owner="demo"), node("n2", owner="demo")]


def rendered(held: ParsedDriver, **platform: Any) -> list[Manifest]:
    return render_driver(held, platform.pop("nodes", NODES), Platform(namespace=NAMESPACE, **platform), None)


def daemonset(held: ParsedDriver, **platform: Any) -> DaemonSetManifest:
    (found,) = (manifest for manifest in rendered(held, **platform) if manifest["kind"] == "DaemonSet")
    return DaemonSetManifest(found)


def test_a_driver_without_nodes_has_no_objects() -> None:
    assert rendered(driver("demo"), nodes=[]) == []


def test_the_daemonset_is_bound_to_the_nodes_of_its_owner() -> None:
    made = daemonset(driver("demo", nodeSelector={"pool": "a"}))
    assert made.name == f"nvidia-gpu-driver-ubuntu24.04-{short_hash('uid-demo')}"
    assert made.manifest["spec"]["selector"]["matchLabels"] == {"app": made.name}
    assert made.pod["nodeSelector"] == {
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu-operator.driver.owner": "demo",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    }
    labels = made.template["metadata"]["labels"]
    assert (
        labels.items()
        >= {
            "app": made.name,
            "app.kubernetes.io/component": "nvidia-driver",
            "nvidia.com/node.os-version": "ubuntu24.04",
            "nvidia.com/precompiled": "false",
            "nvidia.com/gpu-operator.state": "state-driver",
        }.items()
    )
    assert made.manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_everything_is_owned_by_the_nvidiadriver_and_refers_only_to_its_own() -> None:
    openshift = OpenShift(version="4.18", proxy_ca=True)
    made = rendered(driver("demo"), openshift=openshift)
    names = {manifest["kind"]: manifest["metadata"]["name"] for manifest in made}
    for manifest in made:
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("NVIDIADriver", "demo", True)
    account = "nvidia-gpu-driver-demo-ubuntu24.04"
    assert {names[kind] for kind in ("ServiceAccount", "Role", "ClusterRole", "SecurityContextConstraints")} == {
        account
    }
    by_kind = {manifest["kind"]: manifest for manifest in made}
    for binding in ("RoleBinding", "ClusterRoleBinding"):
        assert by_kind[binding]["roleRef"]["name"] == account
        assert by_kind[binding]["subjects"][0]["name"] == account
    assert by_kind["SecurityContextConstraints"]["users"] == [f"system:serviceaccount:{NAMESPACE}:{account}"]
    assert DaemonSetManifest(by_kind["DaemonSet"]).pod["serviceAccountName"] == account
    config_maps = {manifest["metadata"]["name"] for manifest in made if manifest["kind"] == "ConfigMap"}
    assert config_maps == {"nvidia-driver-startup-probe-demo", "gpu-operator-trusted-ca-demo"}
    mounted = set(mounts(DaemonSetManifest(by_kind["DaemonSet"])).values())
    assert config_maps <= mounted


def test_two_nvidiadrivers_share_no_object() -> None:
    def names(name: str) -> set[tuple[str, str]]:
        made = rendered(driver(name), nodes=[node("n", owner=name)])
        return {(manifest["kind"], manifest["metadata"]["name"]) for manifest in made}

    assert not names("one") & names("two")


def test_variants_of_one_system_share_service_account_and_roles() -> None:
    nodes = [node("n1"), node("n2", kernel="6.8.0-61-generic"), node("n3", system="rhel 9.4", kernel="5.14")]
    made = rendered(driver("demo", usePrecompiled=True, version="595"), nodes=nodes)
    found = [manifest["kind"] for manifest in made]
    assert (found.count("DaemonSet"), found.count("ServiceAccount"), found.count("ConfigMap")) == (3, 2, 1)
    images = sorted(DaemonSetManifest(held).main.manifest["image"] for held in made if held["kind"] == "DaemonSet")
    assert images[1] == "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"usePrecompiled": True, "gds": {"enabled": True}}, "gds cannot be loaded beside"),
        ({"usePrecompiled": True, "gdrcopy": {"enabled": True}}, "gdrcopy cannot be loaded beside"),
        ({"usePrecompiled": True, "version": "sha256:abc"}, "is a digest"),
        ({"gds": {"enabled": True, "repository": "r", "image": "i", "version": "v2.17.5"}}, "kernelModuleType"),
        ({"gds": {"enabled": True, "repository": "r", "image": "i", "version": "2.20.1"}}, "kernelModuleType"),
        ({"gds": {"enabled": True, "repository": "r", "image": "i", "version": "sha256:a"}}, "kernelModuleType"),
        ({"repository": "", "version": "", "image": "nvcr.io/nvidia/driver"}, "has no version"),
        ({"kernelModuleConfig": {"name": "absent"}}, "ConfigMap absent"),
    ],
)
def test_what_cannot_be_rendered_says_why(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rendered(driver("demo", **spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"gds": {"enabled": True, "repository": "r", "image": "i", "version": "v2.17.4"}},
        {"gds": {"enabled": True, "repository": "r", "image": "i", "version": "2.29.4"}, "kernelModuleType": "open"},
    ],
)
def test_storage_goes_with_modules_that_can_do_it(spec: dict[str, Any]) -> None:
    assert daemonset(driver("demo", **spec)).has("nvidia-fs-ctr")


def test_an_unreadable_spec_says_so() -> None:
    with pytest.raises(RenderError, match=r"spec\.rdma"):
        rendered(ParsedDriver(name="demo", uid="u", problem="spec.rdma: no"))


def test_arguments_follow_init() -> None:
    assert daemonset(driver("demo", args=["--loud"])).main.manifest["args"] == ["init", "--loud"]


@pytest.mark.parametrize(("precompiled", "delay"), [(False, 60), (True, 5)])
def test_a_start_up_probe_that_is_not_given_allows_the_time_that_building_needs(precompiled: bool, delay: int) -> None:
    probe = daemonset(driver("demo", startupProbe=None, usePrecompiled=precompiled)).main.manifest["startupProbe"]
    assert (probe["initialDelaySeconds"], probe["timeoutSeconds"], probe["failureThreshold"]) == (delay, 60, 120)


def test_the_spec_changes_its_pods_but_not_their_selector() -> None:
    made = daemonset(
        driver(
            "demo",
            labels={"app": "mine", "app.kubernetes.io/component": "mine", "team": "ml"},
            annotations={"note": "x"},
            tolerations=[
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "night", "operator": "Exists"},
            ],
            priorityClassName="mine",
            podSecurityContext={"fsGroup": 1},
            env=[{"name": "KERNEL_MODULE_TYPE", "value": "mine"}],
            livenessProbe={"periodSeconds": 1},
        )
    )
    labels = made.template["metadata"]["labels"]
    assert (labels["app"], labels["app.kubernetes.io/component"]) == (made.name, "nvidia-driver")
    assert labels["team"] == "ml"
    assert made.template["metadata"]["annotations"]["note"] == "x"
    assert [held["key"] for held in made.pod["tolerations"]] == ["nvidia.com/gpu", "night"]
    assert (made.pod["priorityClassName"], made.pod["securityContext"]) == ("mine", {"fsGroup": 1})
    assert made.main.env("KERNEL_MODULE_TYPE") == "mine"
    assert "livenessProbe" not in made.main.manifest


def test_the_host_manager_runs_where_virtual_machines_do() -> None:
    made = daemonset(driver("demo", driverType="vgpu-host-manager"))
    labels, gates = made.template["metadata"]["labels"], made.pod["nodeSelector"]
    assert labels["app.kubernetes.io/component"] == "nvidia-vgpu-host-manager"
    assert gates["nvidia.com/gpu.deploy.vgpu-manager"] == "true"
    assert "nvidia.com/gpu.deploy.driver" not in gates
    assert mounts(made).items() >= {"/dev/vfio": "/dev/vfio", "/sys/fs/cgroup": "/sys/fs/cgroup"}.items()
    assert made.container(MANAGER).env("ENABLE_GPU_POD_EVICTION") == "false"
    assert "startupProbe" not in made.main.manifest
    assert made.pod["serviceAccountName"] == "nvidia-vgpu-manager-demo-ubuntu24.04"


def test_the_clusterpolicy_says_where_the_hosts_root_is() -> None:
    spec = policy(None, hostPaths={"rootFS": "/sysroot"})
    made = render_driver(driver("demo"), NODES, Platform(namespace=NAMESPACE), spec)
    held = DaemonSetManifest(next(manifest for manifest in made if manifest["kind"] == "DaemonSet"))
    assert mounts(held, MANAGER)["/host"] == "/sysroot"
    assert mounts(daemonset(driver("demo")), MANAGER)["/host"] == "/"


@pytest.mark.parametrize(
    ("own", "policys", "expected"),
    [("", "", "system-node-critical"), ("", "low", "low"), ("own", "low", "own"), ("own", "", "own")],
)
def test_its_priority_is_that_of_the_policys_drivers_unless_it_has_its_own(
    own: str, policys: str, expected: str
) -> None:
    spec = policy(None, daemonsets={"priorityClassName": policys})
    made = render_driver(driver("demo", priorityClassName=own), NODES, Platform(namespace=NAMESPACE), spec)
    held = DaemonSetManifest(next(manifest for manifest in made if manifest["kind"] == "DaemonSet"))
    assert held.pod["priorityClassName"] == expected


def test_only_the_manager_may_be_named_by_the_operators_environment() -> None:
    images = {"DRIVER_MANAGER_IMAGE": "env/manager:1", "DRIVER_IMAGE": "env/driver:1"}
    assert daemonset(driver("demo", manager={}), images=images).container(MANAGER).manifest["image"] == "env/manager:1"
    with pytest.raises(ValueError, match="names no image for the driver"):
        rendered(driver("demo", repository="", image="", version=""), images=images)


def test_every_driver_pod_has_a_digest() -> None:
    one, two = (daemonset(driver("demo", version=version)) for version in ("1", "2"))
    assert one.main.env("DRIVER_CONFIG_DIGEST") != two.main.env("DRIVER_CONFIG_DIGEST")
    labelled = daemonset(driver("demo", version="1", labels={"team": "ml"}, priorityClassName="x"))
    assert labelled.main.env("DRIVER_CONFIG_DIGEST") == one.main.env("DRIVER_CONFIG_DIGEST")


def test_the_digest_does_not_depend_on_the_owner() -> None:
    digests = {
        daemonset(driver(name), nodes=[node("n", owner=name)]).main.env("DRIVER_CONFIG_DIGEST")
        for name in ("one", "two")
    }
    assert len(digests) == 1


def test_a_licence_comes_with_a_token_unless_it_is_switched_off() -> None:
    token = "/drivers/ClientConfigToken/client_configuration_token.tok"
    assert token in mounts(daemonset(driver("demo", licensingConfig={"secretName": "s"})))
    assert token not in mounts(daemonset(driver("demo", licensingConfig={"secretName": "s", "nlsEnabled": False})))
