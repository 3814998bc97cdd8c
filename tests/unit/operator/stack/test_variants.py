"""Which DaemonSets a mixed fleet needs, and that a name, once given, stays where it is."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.render_input import Platform, RenderError, RenderInput
from gpu_control_plane.operator.stack.variants import Variant, by_runtime, by_runtime_class, by_system, one_for_all
from unit.api.nvidia.stock import stock_policy

NAME = "nvidia-driver-daemonset"
SPEC = stock_policy()["spec"]
STOCK = msgspec.convert(SPEC, ClusterPolicySpec)
WITHOUT_CDI = msgspec.convert({**SPEC, "cdi": {"enabled": False}}, ClusterPolicySpec)
NRI = msgspec.convert({**SPEC, "cdi": {"enabled": True, "nriPluginEnabled": True}}, ClusterPolicySpec)
UBUNTU, RHEL, SLES = (
    OperatingSystem("ubuntu", "24.04"),
    OperatingSystem("rhel", "9.4"),
    OperatingSystem("sles", "15-SP6"),
)

Fleet = Mapping[NodeKind, int]


def _render_input(
    fleet: Fleet, held: str | None = None, *, openshift: bool = False, spec: ClusterPolicySpec = STOCK
) -> RenderInput:
    return RenderInput(
        policy=spec,
        platform=Platform(
            namespace="x",
            current_variants={NAME: held} if held else {},
            openshift=OpenShift(version="4.20") if openshift else None,
        ),
        kinds=fleet,
    )


def _systems(**counts: int) -> Fleet:
    named = {"ubuntu": UBUNTU, "rhel": RHEL, "sles": SLES}
    return {NodeKind(system=named[name]): count for name, count in counts.items()}


def _plain(variants: tuple[Variant, ...]) -> str:
    (found,) = [variant.label for variant in variants if variant.plain]
    return found


def test_a_fleet_of_one_system_has_one_daemonset_with_the_plain_name() -> None:
    (made,) = by_system(_render_input(_systems(ubuntu=3)), NAME)
    assert made.plain
    assert made.label == "ubuntu24.04"
    assert made.selector == {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "24.04"}


def test_minor_versions_of_one_family_share_a_daemonset() -> None:
    fleet = {NodeKind(system=OperatingSystem("rhel", version)): 1 for version in ("9.2", "9.4", "10.0")}
    assert {variant.label for variant in by_system(_render_input(fleet), NAME)} == {"rhel9", "rhel10"}


@pytest.mark.parametrize(
    ("fleet", "held", "plain"),
    [
        (_systems(ubuntu=1, rhel=5), None, "rhel9"),
        (_systems(ubuntu=5, rhel=1), None, "ubuntu24.04"),
        (_systems(ubuntu=2, rhel=2, sles=2), None, "rhel9"),
        (_systems(ubuntu=1, rhel=5), "ubuntu24.04", "ubuntu24.04"),
        (_systems(ubuntu=1, rhel=5), "sles15-SP6", "rhel9"),
    ],
    ids=["most nodes", "most nodes, the other way", "a tie goes by name", "who has it keeps it", "its holder is gone"],
)
def test_which_variant_gets_the_plain_name(fleet: Fleet, held: str | None, plain: str) -> None:
    assert _plain(by_system(_render_input(fleet, held), NAME)) == plain


def test_nodes_of_two_minor_versions_count_together() -> None:
    fleet = {NodeKind(system=OperatingSystem("rhel", "9.2")): 2, NodeKind(system=RHEL): 2, NodeKind(system=UBUNTU): 3}
    assert _plain(by_system(_render_input(fleet), NAME)) == "rhel9"


def test_another_daemonsets_name_is_not_taken_for_ours() -> None:
    render_input = _render_input(_systems(ubuntu=1, rhel=5), "ubuntu24.04")
    assert _plain(by_system(render_input, "nvidia-vgpu-manager-daemonset")) == "rhel9"


def test_a_fleet_that_says_nothing_is_an_error_that_names_the_labels() -> None:
    with pytest.raises(RenderError, match="VERSION_ID"):
        by_system(_render_input({NodeKind(kernel="6.8"): 2}), NAME)


def test_a_node_that_says_nothing_does_not_keep_the_others_from_theirs() -> None:
    (made,) = by_system(_render_input({NodeKind(): 4, NodeKind(system=UBUNTU): 1}), NAME)
    assert made.label == "ubuntu24.04"


def test_each_runtime_has_a_daemonset() -> None:
    fleet = {NodeKind(runtime=ContainerRuntime.CRIO): 1, NodeKind(runtime=ContainerRuntime.CONTAINERD): 3}
    first, second = by_runtime(_render_input(fleet), NAME)
    assert (first.label, first.plain, first.selector) == ("containerd", True, {NodeLabel.RUNTIME: "containerd"})
    assert (second.label, second.plain, second.runtime) == ("crio", False, ContainerRuntime.CRIO)


def test_openshift_knows_only_cri_o() -> None:
    (made,) = by_runtime(_render_input({NodeKind(runtime=ContainerRuntime.CONTAINERD): 2}, openshift=True), NAME)
    assert made.runtime is ContainerRuntime.CRIO


def test_without_nodes_containerd_is_assumed() -> None:
    (made,) = by_runtime(_render_input({}), NAME)
    assert made.runtime is ContainerRuntime.CONTAINERD


@pytest.mark.parametrize(
    ("counts", "runtime"),
    [
        ({}, ContainerRuntime.CONTAINERD),
        ({ContainerRuntime.CRIO: 2, ContainerRuntime.CONTAINERD: 1}, ContainerRuntime.CRIO),
        ({ContainerRuntime.CRIO: 1, ContainerRuntime.CONTAINERD: 1}, ContainerRuntime.CONTAINERD),
    ],
)
def test_a_shared_daemonset_has_the_most_common_runtime(
    counts: dict[ContainerRuntime, int], runtime: ContainerRuntime
) -> None:
    (made,) = one_for_all(_render_input({NodeKind(runtime=name): count for name, count in counts.items()}), NAME)
    assert made.runtime is runtime
    assert not made.label
    assert not made.selector


@pytest.mark.parametrize(
    ("spec", "runtimes", "count"),
    [
        (STOCK, {ContainerRuntime.CRIO, ContainerRuntime.CONTAINERD}, 1),
        (NRI, {ContainerRuntime.CRIO, ContainerRuntime.CONTAINERD}, 1),
        (WITHOUT_CDI, {ContainerRuntime.CRIO, ContainerRuntime.CONTAINERD}, 2),
        (WITHOUT_CDI, {ContainerRuntime.CRIO}, 1),
        (WITHOUT_CDI, {ContainerRuntime.CONTAINERD, ContainerRuntime.DOCKER}, 1),
    ],
)
def test_operands_that_need_cards_part_ways_only_where_runtime_classes_differ(
    spec: ClusterPolicySpec, runtimes: set[ContainerRuntime], count: int
) -> None:
    fleet = {NodeKind(runtime=runtime): 1 for runtime in runtimes}
    assert len(by_runtime_class(_render_input(fleet, spec=spec), NAME)) == count


_SYSTEM = st.builds(
    OperatingSystem,
    id=st.sampled_from(["ubuntu", "rhel", "rocky", "ol", "sles", "rhcos", "talos", "debian"]),
    version=st.sampled_from(["9", "9.4", "9.6", "10.0", "24.04", "15-SP6", "v1.12.6"]),
)
_KIND = st.builds(
    NodeKind,
    system=st.none() | _SYSTEM,
    kernel=st.sampled_from(["", "6.8.0-60-generic"]),
    runtime=st.sampled_from(list(ContainerRuntime)),
)
_FLEET = st.dictionaries(_KIND, st.integers(1, 5), max_size=8)
_KNOWN = _FLEET.filter(lambda fleet: any(kind.system for kind in fleet))


def _labels(kind: NodeKind) -> dict[str, str]:
    """What the node's labels are: those of Node Feature Discovery, and ours for the runtime."""
    labels: dict[str, str] = {NodeLabel.RUNTIME: kind.runtime.value}
    if kind.system is not None:
        version = kind.system.version
        labels |= {NodeLabel.OS_ID: kind.system.id, NodeLabel.OS_VERSION: version}
        labels |= {NodeLabel.OS_MAJOR: version.split(".")[0]}
    return labels


@given(fleet=_KNOWN)
def test_every_node_that_says_its_system_belongs_to_exactly_one_variant(fleet: Fleet) -> None:
    variants = by_system(_render_input(fleet), NAME)
    for kind in fleet:
        theirs = [variant for variant in variants if variant.selector.items() <= _labels(kind).items()]
        if kind.system is None:
            assert not theirs
        else:
            assert [variant.label for variant in theirs] == [kind.system.tag]


@given(fleet=_FLEET)
def test_every_node_belongs_to_exactly_one_variant_of_a_runtime(fleet: Fleet) -> None:
    variants = by_runtime(_render_input(fleet), NAME)
    for kind in fleet:
        theirs = [variant.runtime for variant in variants if variant.selector.items() <= _labels(kind).items()]
        assert theirs == [kind.runtime]


@given(fleet=_KNOWN)
def test_there_is_one_plain_name_and_every_label_is_unique(fleet: Fleet) -> None:
    variants = by_system(_render_input(fleet), NAME)
    assert len([variant for variant in variants if variant.plain]) == 1
    assert len({variant.label for variant in variants}) == len(variants)


@given(fleet=_KNOWN)
def test_the_order_in_which_nodes_are_listed_changes_nothing(fleet: Fleet) -> None:
    backwards = dict(reversed(list(fleet.items())))
    assert by_system(_render_input(fleet), NAME) == by_system(_render_input(backwards), NAME)


@given(fleets=st.lists(_KNOWN, min_size=2, max_size=6))
def test_the_plain_name_stays_while_any_node_needs_it(fleets: list[Fleet]) -> None:
    held: str | None = None
    for fleet in fleets:
        variants = by_system(_render_input(fleet, held), NAME)
        if held in {variant.label for variant in variants}:
            assert _plain(variants) == held
        held = _plain(variants)
