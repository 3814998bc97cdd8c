"""Pods whose units still look free in the status of their pool."""

from datetime import timedelta

import msgspec

from gpu_control_plane.ray.cluster.gang_controller import UNSETTLED_FOR, UnsettledPods
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE
from gpu_control_plane.ray.owned import RayPod
from unit.ray.cluster.pod_world import NOW
from unit.ray.ray_clusters import gpu_pool, pools

RESOURCE = "gpu.deckhouse.io/training"
POOLS = pools(gpu_pool("training"))


def pod(
    *,
    gated: bool = False,
    node: str = "",
    phase: str = "Pending",
    resource: str = RESOURCE,
    units: int = 2,
    refused: bool = False,
    first: int = 0,
) -> RayPod:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}] if refused else []
    body = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": node,
            "schedulingGates": [{"name": GANG_GATE}] if gated else [],
            "containers": [{"name": "ray", "resources": {"limits": {resource: str(units)}}}],
            "initContainers": [{"name": "first", "resources": {"limits": {resource: str(first)}}}] if first else [],
        },
        "status": {"phase": phase, "conditions": conditions},
    }
    return msgspec.convert(body, RayPod)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def held(self, unsettled: UnsettledPods) -> int:
        return unsettled.units(self.now, POOLS, lambda _resource: 8).get(RESOURCE, 0)


def new() -> tuple[UnsettledPods, Clock]:
    clock = Clock()
    return UnsettledPods(lambda: clock.now), clock


def test_a_pod_that_waits_at_its_gate_holds_nothing() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod(gated=True))
    assert clock.held(unsettled) == 0


def test_a_pod_that_was_released_counts_for_a_while_and_again_when_it_has_a_node() -> None:
    unsettled, clock = new()
    unsettled.changed(pod(gated=True), pod())
    assert clock.held(unsettled) == 2
    clock.now += UNSETTLED_FOR
    assert clock.held(unsettled) == 0
    unsettled.changed(pod(), pod(node="n"))
    assert clock.held(unsettled) == 2
    clock.now += UNSETTLED_FOR - timedelta(seconds=1)
    # What happens to it later is known to the pool.
    unsettled.changed(pod(node="n"), pod(node="n", phase="Running"))
    clock.now += timedelta(seconds=1)
    assert clock.held(unsettled) == 0


def test_pods_of_before_this_process_count_when_they_are_seen_first() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod(node="n"))
    assert clock.held(unsettled) == 2


def test_a_pod_that_has_ended_or_gone_holds_nothing() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod())
    unsettled.changed(pod(), pod(phase="Failed"))
    assert clock.held(unsettled) == 0
    unsettled.changed(None, pod())
    unsettled.changed(pod(), None)
    assert clock.held(unsettled) == 0


def test_only_units_of_pools_count() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod(resource="nvidia.com/gpu"))
    assert not unsettled.units(clock.now, POOLS, lambda _resource: 8)


def test_what_no_node_has_room_for_takes_nothing() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod(units=1_000_000))
    assert clock.held(unsettled) == 0
    unsettled.changed(None, pod(units=8))
    assert clock.held(unsettled) == 8
    unsettled.changed(pod(units=8), pod(units=8, refused=True))
    assert clock.held(unsettled) == 0
    unsettled.changed(pod(units=8, refused=True), pod(units=8, node="n"))
    assert clock.held(unsettled) == 8
    unsettled.changed(None, pod(refused=True))
    assert clock.held(unsettled) == 0


def test_while_no_node_is_known_every_pod_counts() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod())
    assert unsettled.units(clock.now, POOLS, lambda _resource: 0) == {RESOURCE: 2}


def test_an_init_container_that_asks_for_more_counts() -> None:
    unsettled, clock = new()
    unsettled.changed(None, pod(first=5))
    assert clock.held(unsettled) == 5
