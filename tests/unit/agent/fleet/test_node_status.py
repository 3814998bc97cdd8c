"""What the Node says, as a kubelet would write it."""

from gpu_control_plane.agent.fleet.node_status import resource_changes
from gpu_control_plane.agent.fleet.process import _Slowness
from gpu_control_plane.agent.views import NodeStatus
from gpu_control_plane.api.gpunodestate import Plugin, PluginResource

TRAINING = "gpu.deckhouse.io/training"
ANNOUNCED = Plugin(observed_generation=1, resources=(PluginResource(name=TRAINING, units=2, healthy=1),))
NOTHING = Plugin(observed_generation=2)


def test_capacity_counts_every_card_and_allocatable_the_healthy_ones() -> None:
    changes = resource_changes(NodeStatus(capacity={"cpu": "4"}), ANNOUNCED, ())
    assert changes == {"capacity": {TRAINING: "2"}, "allocatable": {TRAINING: "1"}}


def test_a_node_that_says_it_already_is_left_alone() -> None:
    status = NodeStatus(capacity={TRAINING: "2"}, allocatable={TRAINING: "1"})
    assert resource_changes(status, ANNOUNCED, (TRAINING,)) == {}


def test_a_resource_that_is_no_longer_served_stays_as_zero() -> None:
    own = "gpu.example.com/own"
    status = NodeStatus(capacity={TRAINING: "2", own: "1"}, allocatable={TRAINING: "0", own: "1"})
    zeros = resource_changes(status, NOTHING, (own,))
    assert zeros == {"capacity": {TRAINING: "0", own: "0"}, "allocatable": {own: "0"}}


def test_resources_of_other_plugins_are_left_alone() -> None:
    assert resource_changes(NodeStatus(capacity={"nvidia.com/gpu": "8"}), NOTHING, (TRAINING,)) == {}


def test_a_slow_node_reacts_late_each_time() -> None:
    clock = [0.0]
    slowness = _Slowness(lambda: clock[0])
    assert slowness.pause("node", 10) == 10
    clock[0] = 4.0
    assert slowness.pause("node", 10) == 6
    clock[0] = 10.0
    assert slowness.pause("node", 10) == 0
    assert slowness.pause("node", 10) == 10
    assert slowness.pause("node", 0) == 0
