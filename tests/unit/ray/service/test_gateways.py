"""Gateways and their routes come, divide requests and go, also where the operator dies or the Gateway API is late."""

from datetime import timedelta
from typing import Any, Final

import pytest

from gpu_control_plane.api.ray.service import ServiceCondition
from unit.ray.service.builders import CONFIG, POOL, group, service_of, template
from unit.ray.service.service_model import RayServiceModel, of_before, situation

ONE = {POOL: 1}


INCREMENTAL: Final[dict[str, Any]] = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {"stepSizePercent": 50, "intervalSeconds": 1, "gatewayClassName": "g"},
}
SCALED: Final = {"enableInTreeAutoscaling": True}


def divided(**spec: Any) -> RayServiceModel:
    model = RayServiceModel(service_of(group(replicas=2), upgradeStrategy=INCREMENTAL, cluster=SCALED, **spec))
    model.settle()
    assert model.ready()
    assert model.gateway is not None
    assert model.route is not None
    return model


@pytest.mark.parametrize("crash_after", range(4))
def test_a_gateway_that_is_no_longer_needed_goes_also_after_a_crash(crash_after: int) -> None:
    model = divided()
    model.change(upgradeStrategy={"type": "NewCluster"})
    model.gateway_known = False
    model.reconcile()
    model.gateway_known = True
    model.reconcile(crash_after=crash_after)
    model.settle()
    assert (model.gateway, model.route) == (None, None)
    assert model.service.status.active_service_status is not None
    assert model.service.status.active_service_status.target_capacity is None


def test_a_service_is_not_suspended_before_its_gateway_is_gone() -> None:
    model = divided()
    model.change(suspend=True)
    model.gateway_known = False
    model.settle(6)
    assert situation(model, ServiceCondition.SUSPENDED) == ("", "")
    model.gateway_known = True
    model.settle(6)
    assert situation(model, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert (model.gateway, model.route) == (None, None)


def test_a_new_configuration_is_not_told_to_the_old_cluster_while_the_gateway_api_is_asked_for() -> None:
    model = divided()
    old, puts = model.active, len(model.serve.puts)
    model.gateway_known = False
    config = CONFIG.replace("demo", "made-for-ray-2")
    body = {"headGroupSpec": {"template": template("ray:2")}, "workerGroupSpecs": [group(image="ray:2")], **SCALED}
    model.change(serveConfigV2=config, rayClusterConfig=body)
    model.settle(4)
    assert len(model.serve.puts) == puts
    assert "ChangeNotCarriedOut" not in model.events
    model.gateway_known = True
    model.settle()
    assert model.active != old
    assert len({body["digest"] for name, body in model.serve.puts if name == old}) == 1


def test_a_change_that_waits_for_the_gateway_api_is_not_lost_with_another_release() -> None:
    model = divided()
    old = model.active
    model.gateway_known = False
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.reconcile()
    of_before(model, "gpu-control-plane-0.0.1")
    model.reconcile()
    model.gateway_known = True
    model.settle()
    assert model.active != old


@pytest.mark.parametrize("then", ["ray:1", "ray:3"])
def test_a_way_back_is_gone_to_its_end_under_another_release(then: str) -> None:
    model = divided()
    old = model.active
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    while (model.shares() or {old: 100}).get(old) == 100:
        model.settle(1, step=timedelta(seconds=5))
    model.change_cluster(group(replicas=2, image=then), image=then, **SCALED)
    model.reconcile()
    of_before(model, "gpu-control-plane-0.0.1")
    model.settle()
    (left,) = model.clusters.values()
    assert left.spec.head_group_spec == model.service.spec.ray_cluster_config.head_group_spec
    assert (left.name == old) is (then == "ray:1")


def test_after_a_way_back_to_another_spec_the_service_is_not_up_to_date() -> None:
    model = divided()
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.settle(6, step=timedelta(seconds=5))
    assert model.pending
    model.change_cluster(group(replicas=2, image="ray:3"), image="ray:3", **SCALED)
    while model.pending:
        model.settle(1)
    assert situation(model, ServiceCondition.UP_TO_DATE) == ("False", "ChangeNotCarriedOut")
    model.settle()
    assert situation(model, ServiceCondition.UP_TO_DATE) == ("True", "UpToDate")


def test_an_incremental_upgrade_needs_no_requests_at_the_head() -> None:
    model = divided(excludeHeadPodFromServeSvc=True)
    old = model.active
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.settle()
    assert model.ready()
    assert model.active != old


@pytest.mark.parametrize("steps", range(1, 8))
def test_an_upgrade_that_is_to_be_divided_from_now_on_ends(steps: int) -> None:
    model = RayServiceModel(service_of(group(replicas=2), cluster=SCALED))
    model.settle()
    old = model.active
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.settle(steps)
    model.change(upgradeStrategy=INCREMENTAL)
    model.settle()
    assert model.ready()
    assert list(model.clusters) == [model.active] != [old]
    assert model.shares() == {f"{model.active}-serve-svc": 100}


@pytest.mark.parametrize("seconds", range(5, 60, 5))
def test_an_upgrade_that_is_no_longer_to_be_divided_ends(seconds: int) -> None:
    model = divided()
    old = model.active
    surge = {**INCREMENTAL["clusterUpgradeOptions"], "maxSurgePercent": 40, "stepSizePercent": 30}
    model.change(upgradeStrategy={**INCREMENTAL, "clusterUpgradeOptions": surge})
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.settle(seconds // 5, step=timedelta(seconds=5))
    model.change(upgradeStrategy={"type": "NewCluster"})
    model.settle()
    assert model.ready()
    assert list(model.clusters) == [model.active] != [old]
    assert (model.gateway, model.route) == (None, None)


@pytest.mark.parametrize("crash_after", range(5))
def test_a_gateway_goes_also_where_the_active_cluster_was_lost(crash_after: int) -> None:
    model = divided()
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    model.settle(6, step=timedelta(seconds=5))
    assert model.pending
    model.delete(model.clusters[model.active])
    model.change(upgradeStrategy={"type": "NewCluster"})
    model.reconcile(crash_after=crash_after)
    model.settle()
    assert model.ready()
    assert (model.gateway, model.route) == (None, None)
    assert model.service.status.active_service_status is not None
    assert model.service.status.active_service_status.target_capacity is None
