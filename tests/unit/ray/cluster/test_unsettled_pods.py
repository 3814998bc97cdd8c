"""Pods whose units still look free in the status of their pool."""

from datetime import timedelta

import msgspec

from gpu_control_plane.ray.cluster.gang_controller import SETTLING, UnsettledPods
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE
from gpu_control_plane.ray.owned import RayPod
from unit.ray.cluster.pod_world import NOW
from unit.ray.ray_clusters import gpu_pool, pools

RESOURCE = "gpu.deckhouse.io/training"
POOLS = pools(gpu_pool("training"))


def pod(*, gated: bool = False, node: str = "", phase: str = "Pending", resource: str = RESOURCE) -> RayPod:
    body = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": node,
            "schedulingGates": [{"name": GANG_GATE}] if gated else [],
            "containers": [{"name": "ray", "resources": {"limits": {resource: "2"}}}],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(body, RayPod)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def held(self, unsettled: UnsettledPods) -> int:
        return unsettled.units(self.now, POOLS).get(RESOURCE, 0)


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
    clock.now += SETTLING
    assert clock.held(unsettled) == 0
    unsettled.changed(pod(), pod(node="n"))
    assert clock.held(unsettled) == 2
    clock.now += SETTLING - timedelta(seconds=1)
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
    assert not unsettled.units(clock.now, POOLS)
