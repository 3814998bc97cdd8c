"""How far a change of the policy reaches: the operands it is about get new pods, and no others do."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.render import render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from unit.api.nvidia.stock import stock_policy
from unit.operator.stack.container_builders import PEOPLES
from unit.operator.stack.daemonset_names import (
    DCGM,
    DRIVER,
    EXPORTER,
    GFD,
    MIG,
    MPS,
    PLUGIN,
    STATUS_EXPORTER,
    TOOLKIT,
    VALIDATOR,
)

UBUNTU = NodeKind(system=OperatingSystem("ubuntu", "24.04"))
BASE: dict[str, Any] = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}
WHOLE = {"repository": "r.example", "image": "other", "version": "v2"}
ENV = {"env": [{"name": "LOUD", "value": "1"}]}


def rendered(sections: dict[str, Any], **platform: Any) -> dict[str, bytes]:
    """Every object by kind and name, DaemonSets by the pods they make."""
    spec = stock_policy()["spec"]
    for section, values in (*BASE.items(), *sections.items()):
        spec[section] = {**spec.get(section, {}), **values}
    render_input = RenderInput(
        policy=msgspec.convert(spec, ClusterPolicySpec),
        platform=Platform(namespace="gpu", **{"config_maps": PEOPLES, **platform}),
        kinds={UBUNTU: 2},
    )
    states = render_policy(render_input)
    assert not [state.problem for state in states if state.problem]
    manifests = [manifest for state in states for manifest in state.manifests]
    return {f"{held['kind']}/{held['metadata']['name']}": msgspec.json.encode(held) for held in manifests}


def changed(sections: dict[str, Any], before: dict[str, Any] | None = None, **platform: Any) -> set[str]:
    old, new = rendered(before or {}), rendered(sections, **platform)
    assert old.keys() == new.keys()
    reached = {name for name in old if old[name] != new[name]}
    assert all(name.startswith("DaemonSet/") for name in reached)
    return {name.removeprefix("DaemonSet/") for name in reached}


@pytest.mark.parametrize(
    ("section", "reached"),
    [
        ("driver", {DRIVER}),
        ("toolkit", {TOOLKIT}),
        ("dcgm", {DCGM}),
        ("dcgmExporter", {EXPORTER}),
        ("gfd", {GFD}),
        ("migManager", {MIG}),
        ("nodeStatusExporter", {STATUS_EXPORTER}),
        # The MPS daemon is the plugin's companion and runs its image.
        ("devicePlugin", {PLUGIN, MPS}),
    ],
)
def test_another_image_of_an_operand_reaches_it_alone(section: str, reached: set[str]) -> None:
    assert changed({section: WHOLE}) == reached
    assert changed({section: ENV}) == reached - {MPS}


@pytest.mark.parametrize(
    ("sections", "reached"),
    [
        ({"driver": {"version": "580.1"}}, {DRIVER}),
        ({"driver": {"upgradePolicy": {"autoUpgrade": False, "maxParallelUpgrades": 9}}}, set()),
        ({"driver": {"manager": WHOLE}}, {DRIVER}),
        ({"gds": {"enabled": True}}, {DRIVER, PLUGIN}),
        ({"mig": {"strategy": "mixed"}}, {PLUGIN, MPS, GFD, VALIDATOR}),
        ({"devicePlugin": {"config": {"name": "sharing"}}}, {PLUGIN, MPS, GFD}),
        ({"validator": {"cuda": ENV}}, {VALIDATOR}),
        # Operands that wait for a check run the validator's image.
        (
            {"validator": WHOLE},
            {TOOLKIT, VALIDATOR, PLUGIN, MPS, DCGM, EXPORTER, GFD, MIG},
        ),
        ({"sandboxWorkloads": {"defaultWorkload": "vm-vgpu"}}, set()),
        ({"psa": {"enabled": True}}, set()),
        ({"kataManager": {"enabled": True}}, set()),
        ({"hostPaths": {"kubeletRootDir": "/data/kubelet"}}, {EXPORTER}),
    ],
)
def test_a_change_reaches_whom_it_is_about(sections: dict[str, Any], reached: set[str]) -> None:
    assert changed(sections) == reached


def test_an_edit_of_a_config_map_changes_the_operands_that_read_it() -> None:
    names = {"devicePlugin": {"config": {"name": "sharing"}}, "dcgmExporter": {"config": {"name": "metrics"}}}
    edited = {**PEOPLES, "metrics": {"dcgm-metrics.csv": "edited"}}
    assert changed(names, before=names, config_maps=edited) == {EXPORTER}
    assert changed(names, before=names, config_maps={**PEOPLES, "of-another-team": {"a": "b"}}) == set()


def test_nodes_of_another_kind_reach_no_pod_that_runs() -> None:
    spec = msgspec.convert(stock_policy()["spec"], ClusterPolicySpec)
    one = {UBUNTU: 2}
    two = {**one, NodeKind(system=OperatingSystem("rhel", "9.4"), kernel="5.14", runtime=ContainerRuntime.CRIO): 5}
    held = {DRIVER: "ubuntu24.04", TOOLKIT: "containerd"}
    before, after = (
        {
            manifest["metadata"]["name"]: manifest
            for state in render_policy(
                RenderInput(policy=spec, platform=Platform(namespace="gpu", current_variants=known), kinds=kinds)
            )
            for manifest in state.daemonsets
        }
        for kinds, known in ((one, {}), (two, held))
    )
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {f"{DRIVER}-rhel9", f"{TOOLKIT}-crio"}
