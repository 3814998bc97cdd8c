"""Which changes wake the controller of NVIDIADrivers."""

from typing import Any

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube.objects import ObjectMeta, OwnerReference
from gpu_control_plane.operator.drivers.predicates import content_changed, node_changed, upgrading
from gpu_control_plane.operator.stack.live import Live, LiveConfigMap, LiveDaemonSet
from unit.operator.drivers.builders import node


@pytest.mark.parametrize(
    ("after", "wakes"),
    [
        (node("n", owner="a"), False),
        (node("n", owner="a", labels={"team": "ml"}), False),
        (node("n", owner="b"), True),
        (node("n", owner="a", kernel="other"), True),
        (node("n", owner="a", labels={NodeLabel.PRESENT: "false"}), True),
        (None, True),
    ],
)
def test_only_facts_that_drivers_depend_on_wake(after: Node | None, wakes: bool) -> None:
    assert node_changed(node("n", owner="a"), after) is wakes


def held(kind: type[Live], owner: str, **more: Any) -> Live:
    reference = OwnerReference(api_version="nvidia.com/v1alpha1", kind=owner, name="x", uid="u", controller=True)
    return kind(metadata=ObjectMeta(name="n", owner_references=(reference,) if owner else ()), **more)


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (held(LiveDaemonSet, "NVIDIADriver"), held(LiveDaemonSet, "NVIDIADriver"), False),
        (held(LiveDaemonSet, "NVIDIADriver"), held(LiveDaemonSet, "NVIDIADriver", spec={"a": 1}), True),
        (held(LiveDaemonSet, "NVIDIADriver"), None, True),
        (held(LiveDaemonSet, "ClusterPolicy"), held(LiveDaemonSet, "ClusterPolicy", spec={"a": 1}), False),
        (held(LiveConfigMap, ""), held(LiveConfigMap, "", data={"a": "1"}), True),
    ],
)
def test_a_change_of_their_objects_by_any_writer_wakes(old: Live | None, new: Live | None, wakes: bool) -> None:
    assert content_changed(old, new) is wakes


@pytest.mark.parametrize(
    ("labels", "under_way"),
    [
        ({}, False),
        ({NodeLabel.UPGRADE_STATE: "upgrade-done"}, False),
        ({NodeLabel.UPGRADE_STATE: "upgrade-required"}, True),
        ({NodeLabel.UPGRADE_STATE: "upgrade-failed"}, True),
        ({NodeLabel.UPGRADE_STATE: "upgrade-required", NodeLabel.UPGRADE_SKIP: "true"}, False),
    ],
)
def test_an_upgrade_counts_until_it_is_done(labels: dict[str, str], under_way: bool) -> None:
    assert upgrading(node("n", owner="a", labels=labels)) is under_way
    assert not upgrading(node("n", labels=labels))
