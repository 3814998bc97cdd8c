"""How the nodes of an NVIDIADriver are divided."""

from typing import Any

import pytest

from gpu_control_plane.operator.drivers.names import daemonset_name
from gpu_control_plane.operator.drivers.variants import driver_variants, kinds_of, nodes_with_driver, unidentified_nodes
from gpu_control_plane.operator.node_facts import ContainerRuntime
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.driver.variants import by_kernel
from gpu_control_plane.operator.stack.render_input import Platform, RenderError
from unit.operator.drivers.builders import NAMESPACE, driver, node, wish_of
from unit.operator.stack.driver_builders import policy

OPENSHIFT = OpenShift(version="4.18", toolkit_images={"418.94": "toolkit"})
FLEET = [
    node("u1"),
    node("u2", kernel="6.8.0-61-generic"),
    node("r1", system="rhel 9.4", kernel="5.14"),
    node("r2", system="rhel 9.5", kernel="5.14"),
    node("nameless", system=""),
]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ["rhel9", "ubuntu24.04"]),
        ({"usePrecompiled": True}, ["5.14-rhel9", "6.8.0-60-generic-ubuntu24.04", "6.8.0-61-generic-ubuntu24.04"]),
    ],
)
def test_there_is_a_variant_for_each_system_and_kernel_that_matters(spec: dict[str, Any], words: list[str]) -> None:
    wish = wish_of(**spec)
    found = driver_variants(kinds_of(FLEET), wish, Platform(namespace=NAMESPACE), None)
    assert [variant.label for variant in found] == words


def test_kernels_that_differ_in_their_architecture_alone_never_share_a_name() -> None:
    fleet = [node(name, system="rhel 9.4", kernel=f"5.14.0-427.el9.{name}") for name in ("aarch64", "x86_64")]
    wish = wish_of(usePrecompiled=True)
    found = driver_variants(kinds_of(fleet), wish, Platform(namespace=NAMESPACE), None)
    assert len({daemonset_name(wish.type, "uid", variant) for variant in found}) == len(found) == 2
    with pytest.raises(RenderError, match=r"5.14.0-427.el9.aarch64 and 5.14.0-427.el9.x86_64 would have one name"):
        by_kernel(kinds_of(fleet), whole=True)


def test_variants_select_disjoint_nodes_and_leave_out_only_unidentified_ones() -> None:
    for spec in ({}, {"usePrecompiled": True}):
        wish = wish_of(**spec)
        found = driver_variants(kinds_of(FLEET), wish, Platform(namespace=NAMESPACE), None)
        served = [
            held.name for variant in found for held in FLEET if variant.selector.items() <= held.metadata.labels.items()
        ]
        assert sorted(served) == ["r1", "r2", "u1", "u2"]
        assert unidentified_nodes(FLEET, wish) == ["nameless"]


def test_a_precompiled_driver_needs_to_know_the_kernel() -> None:
    wish = wish_of(usePrecompiled=True)
    assert unidentified_nodes([node("n", kernel="")], wish) == ["n"]


@pytest.mark.parametrize(
    ("switch", "words"), [(None, ["417.94", "418.94"]), (True, ["417.94", "418.94"]), (False, ["rhcos4.18"])]
)
def test_openshift_has_a_variant_for_each_release_where_drivers_are_built_in_its_toolkit(
    switch: bool | None, words: list[str]
) -> None:
    nodes = [
        node(release, system="rhcos 4.18", ostree=release, runtime="cri-o://1") for release in ("418.94", "417.94")
    ]
    wish = wish_of()
    spec = policy(None, operator={"use_ocp_driver_toolkit": switch})
    found = driver_variants(kinds_of(nodes), wish, Platform(namespace=NAMESPACE, openshift=OPENSHIFT), spec)
    assert [variant.label for variant in found] == words
    assert {variant.runtime for variant in found} == {ContainerRuntime.CRIO}


def test_a_node_belongs_to_the_driver_that_its_label_names() -> None:
    nodes = [
        node("mine", owner="d"),
        node("other", owner="e"),
        node("unowned"),
        node("gone", owner="d", labels={"nvidia.com/gpu.present": "false"}),
    ]
    assert [held.name for held in nodes_with_driver(driver("d"), nodes)] == ["mine"]


@pytest.mark.parametrize(
    ("kind", "gate", "value", "counts"),
    [
        ("gpu", "driver", "true", True),
        ("gpu", "driver", "paused-for-driver-upgrade", True),
        ("gpu", "driver", "pre-installed", False),
        ("gpu", "driver", "false", False),
        ("gpu", "driver", "", False),
        ("vgpu-host-manager", "vgpu-manager", "true", True),
        ("vgpu-host-manager", "vgpu-manager", "", False),
    ],
)
def test_nodes_that_get_no_driver_are_neither_served_nor_reported(
    kind: str, gate: str, value: str, counts: bool
) -> None:
    """The host brings one, a person keeps it away, or nothing of the stack goes there."""
    held = node("n", owner="d", system="", labels={f"nvidia.com/gpu.deploy.{gate}": value})
    assert bool(nodes_with_driver(driver("d", driverType=kind), [held])) is counts
