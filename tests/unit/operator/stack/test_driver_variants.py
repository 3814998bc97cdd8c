"""Which DaemonSets there are of a driver, and which nodes each is for."""

import msgspec
import pytest

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.driver.openshift import TOOLKIT
from gpu_control_plane.operator.stack.driver.variants import kernel_name
from unit.operator.stack.driver_builders import (
    COREOS,
    NAMELESS,
    NEXT_COREOS,
    OLD_UBUNTU,
    RHEL,
    UBUNTU,
    driver,
    drivers,
    mounts,
    policy,
    problem,
    rendered,
)

OS_ID = "feature.node.kubernetes.io/system-os_release.ID"
OS_VERSION = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
KERNEL_LABEL = "feature.node.kubernetes.io/kernel-version.full"
OSTREE = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"
OPENSHIFT = OpenShift(version="4.18.9", toolkit_images={COREOS.ostree: "toolkit@sha256:1"})


def test_each_system_has_a_driver_of_its_own() -> None:
    made = drivers(policy(), UBUNTU, RHEL, NAMELESS)
    found = {name: (held.main.manifest["image"], held.pod["nodeSelector"][OS_ID]) for name, held in made.items()}
    assert found == {
        "nvidia-driver-daemonset": ("nvcr.io/nvidia/driver:595.91.07-rhel9", "rhel"),
        "nvidia-driver-daemonset-ubuntu24.04": ("nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", "ubuntu"),
    }


def test_a_system_that_cannot_be_served_does_not_stop_the_others() -> None:
    strange = NodeKind(system=OperatingSystem("talos", "v1.12.6"))
    wanted = policy({"certConfig": {"name": "certs"}})
    found = rendered(wanted, UBUNTU, strange, RHEL, config_maps={"certs": {"ca.crt": ""}})
    images = {
        held["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("-")[2] for held in found.daemonsets
    }
    assert images == {"ubuntu24.04", "rhel9"}
    assert found.problem.startswith("talosv1.12.6: it is not known where talos keeps")
    nothing = rendered(wanted, strange, config_maps={"certs": {"ca.crt": ""}})
    assert (nothing.manifests, nothing.problem[:15]) == ((), "it is not known")


def test_a_problem_of_all_systems_is_reported_once() -> None:
    found = rendered(policy({"certConfig": {"name": "certs"}}), UBUNTU, RHEL)
    assert (found.manifests, found.problem.count("create it")) == ((), 1)


def test_nodes_that_do_not_say_their_system_are_left_out() -> None:
    assert "Node Feature Discovery" in problem(policy(), NAMELESS)
    assert "kernel" in problem(policy({"usePrecompiled": True}), NAMELESS)


@pytest.mark.parametrize("section", [{}, {"usePrecompiled": True}], ids=["built", "precompiled"])
def test_nodes_that_bring_their_driver_need_not_say_their_system(section: dict[str, bool]) -> None:
    brings = [msgspec.structs.replace(kind, driver=False) for kind in (NAMELESS, RHEL)]
    assert drivers(policy(section), *brings) == {}
    assert driver(policy(section), *brings, UBUNTU).pod["nodeSelector"][OS_ID] == "ubuntu"
    assert "operating system" in problem(policy(section), *brings, NAMELESS)


def test_a_precompiled_driver_is_made_for_each_kernel_and_system_and_never_for_all() -> None:
    made = drivers(policy({"usePrecompiled": True}), UBUNTU, OLD_UBUNTU, RHEL, NAMELESS)
    assert {name: held.main.manifest["image"].rpartition(":")[2] for name, held in made.items()} == {
        "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04": "595.91.07-6.8.0-60-generic-ubuntu24.04",
        "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu22.04": "595.91.07-6.8.0-60-generic-ubuntu22.04",
        "nvidia-driver-daemonset-5.14.0-427.13.1.el9.4-rhel9.4": "595.91.07-5.14.0-427.13.1.el9_4.x86_64-rhel9",
    }
    for held in made.values():
        word = held.template["metadata"]["labels"][PodLabel.VARIANT]
        assert held.manifest["spec"]["selector"]["matchLabels"] == {
            "app": "nvidia-driver-daemonset",
            PodLabel.VARIANT: word,
        }
        assert held.pod["nodeSelector"].keys() >= {KERNEL_LABEL, OS_ID, OS_VERSION}
    assert len({str(sorted(held.pod["nodeSelector"].items())) for held in made.values()}) == 3


@pytest.mark.parametrize(
    ("kernel", "word"),
    [
        ("6.8.0-60-generic", "6.8.0-60-generic"),
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14.0-427.13.1.el9.4"),
        ("6.6.0-ARM.aarch64", "6.6.0-arm"),
        ("6.1.0+deb12", "6.1.0-deb12"),
    ],
)
def test_a_kernel_becomes_part_of_a_name(kernel: str, word: str) -> None:
    assert kernel_name(kernel) == word


def test_a_long_kernel_still_makes_a_valid_label() -> None:
    long = NodeKind(system=OperatingSystem("ubuntu", "24.04"), kernel=f"6.8.0-{'x' * 57}")
    made = driver(policy({"usePrecompiled": True}), long)
    assert all(len(value) <= 63 for value in made.template["metadata"]["labels"].values())


def test_each_release_of_coreos_is_built_in_its_toolkit() -> None:
    made = drivers(policy(None, operator={"use_ocp_driver_toolkit": True}), COREOS, NEXT_COREOS, openshift=OPENSHIFT)
    assert set(made) == {f"nvidia-driver-daemonset-{kind.ostree}" for kind in (COREOS, NEXT_COREOS)}
    for name, held in made.items():
        labels = held.template["metadata"]["labels"]
        assert held.manifest["spec"]["selector"]["matchLabels"] == {"app": name}
        assert (labels["app"], labels["openshift.driver-toolkit"]) == (name, "true")
        assert held.main.manifest["command"] == ["ocp_dtk_entrypoint"]
        assert mounts(held)["/mnt/shared-nvidia-driver-toolkit"] == "emptyDir"
    known = made[f"nvidia-driver-daemonset-{COREOS.ostree}"]
    assert known.pod["nodeSelector"][OSTREE] == COREOS.ostree
    assert known.container(TOOLKIT).manifest["image"] == "toolkit@sha256:1"
    assert known.container(TOOLKIT).env("RHCOS_VERSION") == COREOS.ostree
    assert known.main.env("RHCOS_IMAGE_MISSING") is None


def test_a_release_without_a_toolkit_image_falls_back() -> None:
    made = driver(policy(None, operator={"use_ocp_driver_toolkit": True}), NEXT_COREOS, openshift=OPENSHIFT)
    toolkit = made.container(TOOLKIT)
    assert toolkit.manifest["image"] == made.main.manifest["image"]
    assert made.main.env("RHCOS_IMAGE_MISSING") == toolkit.env("RHCOS_IMAGE_MISSING") == "true"


@pytest.mark.parametrize(
    ("operator", "section", "openshift"),
    [
        ({"use_ocp_driver_toolkit": False}, {}, OPENSHIFT),
        ({"use_ocp_driver_toolkit": None}, {"usePrecompiled": True}, OPENSHIFT),
        ({"use_ocp_driver_toolkit": None}, {}, OpenShift(version="4.18.9")),
        ({"use_ocp_driver_toolkit": True}, {}, None),
    ],
)
def test_otherwise_there_is_no_toolkit(
    operator: dict[str, bool], section: dict[str, bool], openshift: OpenShift | None
) -> None:
    kind = NodeKind(system=COREOS.system, kernel="5.14", ostree=COREOS.ostree, runtime=COREOS.runtime)
    made = driver(policy(section, operator=operator), kind, openshift=openshift)
    assert not made.has(TOOLKIT)
    assert not made.has_volume("shared-nvidia-driver-toolkit")


def test_modules_beside_the_driver_are_built_in_the_toolkit_too() -> None:
    spec = policy(None, operator={"use_ocp_driver_toolkit": True}, gds={"enabled": True}, gdrcopy={"enabled": True})
    made = driver(spec, COREOS, openshift=OPENSHIFT)
    assert made.container(TOOLKIT).env("GDS_ENABLED") == made.container(TOOLKIT).env("GDRCOPY_ENABLED") == "true"
    for name in ("nvidia-fs-ctr", "nvidia-gdrcopy-ctr"):
        assert made.container(name).manifest["command"] == ["ocp_dtk_entrypoint"]
        assert "/mnt/shared-nvidia-driver-toolkit" in mounts(made, name)


def test_openshifts_version_and_proxy_are_in_the_environment() -> None:
    openshift = OpenShift(version="4.18.9", proxy={"HTTPS_PROXY": "http://proxy"}, proxy_ca=True)
    made = driver(policy(), COREOS, openshift=openshift)
    assert made.main.env("OPENSHIFT_VERSION") == "4.18.9"
    assert made.main.env("HTTPS_PROXY") == made.main.env("https_proxy") == "http://proxy"
    assert mounts(made)["/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"] == "gpu-operator-trusted-ca"


@pytest.mark.parametrize(
    ("openshift", "found"),
    [
        (None, set()),
        (OpenShift(), {"SecurityContextConstraints/nvidia-driver"}),
        (
            OpenShift(proxy_ca=True),
            {"SecurityContextConstraints/nvidia-driver", "ConfigMap/gpu-operator-trusted-ca"},
        ),
    ],
)
def test_only_openshift_has_what_only_openshift_needs(openshift: OpenShift | None, found: set[str]) -> None:
    names = {
        f"{held['kind']}/{held['metadata']['name']}"
        for held in rendered(policy(), COREOS, openshift=openshift).manifests
    }
    only = {"SecurityContextConstraints/nvidia-driver", "ConfigMap/gpu-operator-trusted-ca"}
    assert names & only == found
