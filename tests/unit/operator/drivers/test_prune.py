"""Which DaemonSets of an NVIDIADriver go."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.drivers.prune import OutdatedDaemonSet, outdated_daemonsets
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.views import DaemonSet, DaemonSetSpec, DaemonSetStatus, PodTemplate, TemplateSpec
from unit.operator.drivers.builders import node

NODES = [node("n1", labels={"kernel": "new"}), node("n2", labels={"kernel": "odd"})]
NEW: Manifest = {
    "kind": "DaemonSet",
    "metadata": {"name": "new"},
    "spec": {"template": {"spec": {"nodeSelector": {"kernel": "new"}}}},
}


def held(name: str, kernel: str, *, seen: int = 1, deleting: bool = False, **numbers: Any) -> DaemonSet:
    return DaemonSet(
        metadata=ObjectMeta(name=name, generation=1, deletion_timestamp=datetime.now(UTC) if deleting else None),
        spec=DaemonSetSpec(template=PodTemplate(spec=TemplateSpec(node_selector={"kernel": kernel}))),
        status=DaemonSetStatus(observed_generation=seen, **numbers),
    )


@pytest.mark.parametrize(
    ("daemonset", "goes"),
    [
        (held("old", "gone"), [OutdatedDaemonSet("old")]),
        (held("old", "gone", seen=0), []),
        (held("old", "gone", number_misscheduled=1), []),
        (held("old", "gone", desired_number_scheduled=1), []),
        (held("old", "odd"), []),
        (held("old", "odd", desired_number_scheduled=1), []),
        (held("old", "new", desired_number_scheduled=1), [OutdatedDaemonSet("old", orphan=True)]),
        (held("new", "new"), []),
        (held("old", "gone", deleting=True), []),
    ],
)
def test_a_driver_goes_only_when_no_node_loses_it(daemonset: DaemonSet, goes: list[OutdatedDaemonSet]) -> None:
    assert outdated_daemonsets([daemonset], [NEW], NODES) == goes


def test_without_nodes_idle_ones_go() -> None:
    assert outdated_daemonsets([held("old", "gone"), held("busy", "gone", desired_number_scheduled=2)], [], []) == [
        OutdatedDaemonSet("old")
    ]
