"""The example on the page about the software stack can be applied, and what the page names exists."""

import re
from pathlib import Path

import msgspec
import yaml

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.stored import read_spec
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.render import render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "stack.md").read_text()


def test_the_example_needs_nothing_that_it_does_not_name() -> None:
    manifest = yaml.safe_load((DOCS / "examples" / "cluster-policy.yaml").read_text())
    read = read_spec(msgspec.json.encode(manifest["spec"]), ClusterPolicySpec)
    assert (read.unknown, read.ineffective) == ((), ())
    node = NodeKind(system=OperatingSystem("ubuntu", "24.04"), kernel="6.8.0-60-generic")
    found = render_policy(RenderInput(policy=read.spec, platform=Platform(namespace="gpu"), kinds={node: 1}))
    assert [(state.state, state.problem) for state in found if state.problem] == []


def test_every_condition_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {str(condition) for condition in StackCondition} <= named


def test_every_field_of_an_upgrade_policy_is_mentioned() -> None:
    section = PAGE.partition("## Driver upgrades")[2].partition("\n## ")[0]
    assert [name for name in UpgradePolicy.__struct_encode_fields__ if name not in section] == []
