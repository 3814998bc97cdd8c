"""Gateways and their routes come, divide requests and go, also where the operator dies or the Gateway API is late."""

from datetime import timedelta
from typing import Any, Final

import pytest

from gpu_control_plane.api.ray.service import ServiceCondition
from unit.ray.service.world import CONFIG, POOL, World, group, of_before, service_of, situation, template

ONE = {POOL: 1}


INCREMENTAL: Final[dict[str, Any]] = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {"stepSizePercent": 50, "intervalSeconds": 1, "gatewayClassName": "g"},
}
SCALED: Final = {"enableInTreeAutoscaling": True}


def divided(**spec: Any) -> World:
    world = World(service_of(group(replicas=2), upgradeStrategy=INCREMENTAL, cluster=SCALED, **spec))
    world.settle()
    assert world.ready()
    assert world.gateway is not None
    assert world.route is not None
    return world


@pytest.mark.parametrize("crash_after", range(4))
def test_a_gateway_that_is_no_longer_needed_goes_also_after_a_crash(crash_after: int) -> None:
    world = divided()
    world.change(upgradeStrategy={"type": "NewCluster"})
    world.gateway_known = False
    world.reconcile()
    world.gateway_known = True
    world.reconcile(crash_after=crash_after)
    world.settle()
    assert (world.gateway, world.route) == (None, None)
    assert world.service.status.active_service_status is not None
    assert world.service.status.active_service_status.target_capacity is None


def test_a_service_is_not_suspended_before_its_gateway_is_gone() -> None:
    world = divided()
    world.change(suspend=True)
    world.gateway_known = False
    world.settle(6)
    assert situation(world, ServiceCondition.SUSPENDED) == ("", "")
    world.gateway_known = True
    world.settle(6)
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert (world.gateway, world.route) == (None, None)


def test_a_new_configuration_is_not_told_to_the_old_cluster_while_the_gateway_api_is_asked_for() -> None:
    world = divided()
    old, puts = world.active, len(world.puts)
    world.gateway_known = False
    config = CONFIG.replace("demo", "made-for-ray-2")
    body = {"headGroupSpec": {"template": template("ray:2")}, "workerGroupSpecs": [group(image="ray:2")], **SCALED}
    world.change(serveConfigV2=config, rayClusterConfig=body)
    world.settle(4)
    assert len(world.puts) == puts
    assert "ChangeNotCarriedOut" not in world.events
    world.gateway_known = True
    world.settle()
    assert world.active != old
    assert len({body["digest"] for name, body in world.puts if name == old}) == 1


def test_a_change_that_waits_for_the_gateway_api_is_not_lost_with_another_release() -> None:
    world = divided()
    old = world.active
    world.gateway_known = False
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.reconcile()
    of_before(world, "gpu-control-plane-0.0.1")
    world.reconcile()
    world.gateway_known = True
    world.settle()
    assert world.active != old


@pytest.mark.parametrize("then", ["ray:1", "ray:3"])
def test_a_way_back_is_gone_to_its_end_under_another_release(then: str) -> None:
    world = divided()
    old = world.active
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    while (world.shares() or {old: 100}).get(old) == 100:
        world.settle(1, step=timedelta(seconds=5))
    world.change_cluster(group(replicas=2, image=then), image=then, **SCALED)
    world.reconcile()
    of_before(world, "gpu-control-plane-0.0.1")
    world.settle()
    (left,) = world.clusters.values()
    assert left.spec.head_group_spec == world.service.spec.ray_cluster_config.head_group_spec
    assert (left.name == old) is (then == "ray:1")


def test_after_a_way_back_to_another_spec_the_service_is_not_up_to_date() -> None:
    world = divided()
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle(6, step=timedelta(seconds=5))
    assert world.pending
    world.change_cluster(group(replicas=2, image="ray:3"), image="ray:3", **SCALED)
    while world.pending:
        world.settle(1)
    assert situation(world, ServiceCondition.UP_TO_DATE) == ("False", "ChangeNotCarriedOut")
    world.settle()
    assert situation(world, ServiceCondition.UP_TO_DATE) == ("True", "UpToDate")


def test_an_incremental_upgrade_needs_no_requests_at_the_head() -> None:
    world = divided(excludeHeadPodFromServeSvc=True)
    old = world.active
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle()
    assert world.ready()
    assert world.active != old


@pytest.mark.parametrize("steps", range(1, 8))
def test_an_upgrade_that_is_to_be_divided_from_now_on_ends(steps: int) -> None:
    world = World(service_of(group(replicas=2), cluster=SCALED))
    world.settle()
    old = world.active
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle(steps)
    world.change(upgradeStrategy=INCREMENTAL)
    world.settle()
    assert world.ready()
    assert list(world.clusters) == [world.active] != [old]
    assert world.shares() == {f"{world.active}-serve-svc": 100}


@pytest.mark.parametrize("seconds", range(5, 60, 5))
def test_an_upgrade_that_is_no_longer_to_be_divided_ends(seconds: int) -> None:
    world = divided()
    old = world.active
    surge = {**INCREMENTAL["clusterUpgradeOptions"], "maxSurgePercent": 40, "stepSizePercent": 30}
    world.change(upgradeStrategy={**INCREMENTAL, "clusterUpgradeOptions": surge})
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle(seconds // 5, step=timedelta(seconds=5))
    world.change(upgradeStrategy={"type": "NewCluster"})
    world.settle()
    assert world.ready()
    assert list(world.clusters) == [world.active] != [old]
    assert (world.gateway, world.route) == (None, None)


@pytest.mark.parametrize("crash_after", range(5))
def test_a_gateway_goes_also_where_the_active_cluster_was_lost(crash_after: int) -> None:
    world = divided()
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle(6, step=timedelta(seconds=5))
    assert world.pending
    world.delete(world.clusters[world.active])
    world.change(upgradeStrategy={"type": "NewCluster"})
    world.reconcile(crash_after=crash_after)
    world.settle()
    assert world.ready()
    assert (world.gateway, world.route) == (None, None)
    assert world.service.status.active_service_status is not None
    assert world.service.status.active_service_status.target_capacity is None
