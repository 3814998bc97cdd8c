"""What the conditions of a RayService say, situation by situation."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Annotation, Finalizer
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.ray.service.actions import RemoveFinalizer
from gpu_control_plane.ray.service.decide import decide
from unit.ray.service.world import POOL, START, World, group, running, service_of, situation

ONE = {POOL: 1}


def test_conditions_of_a_service_that_comes_up() -> None:
    world = World(service_of(group()))
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "Initializing")
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "Initializing")
    world.reconcile()
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("Unknown", "NoActiveCluster")
    world.settle()
    assert situation(world, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "NoPendingCluster")
    assert world.service.status.service_status == "Running"


def test_conditions_of_a_service_that_loses_its_pods() -> None:
    world = running()
    for pod in list(world.pods):
        world.delete_pod(pod)
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "ZeroServeEndpoints")
    assert world.service.status.service_status == ""


def test_conditions_of_a_suspended_service() -> None:
    world = running()
    world.change(suspend=True)
    decision = world.reconcile(crash_after=1)
    assert len(decision.actions) > 1, "it is said before anything goes"
    assert situation(world, ServiceCondition.SUSPENDING) == ("True", "SuspendRequested")
    assert situation(world, ServiceCondition.READY) == ("False", "SuspendInProgress")
    world.change(suspend=False)
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDING) == ("True", "SuspendInProgress")
    assert not world.clusters, "it is done to the end"
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert situation(world, ServiceCondition.READY) == ("False", "SuspendComplete")
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDED) == ("False", "RayServiceResumed")
    assert situation(world, ServiceCondition.READY) == ("False", "Initializing")
    world.settle()
    assert world.ready()


def test_what_appears_after_a_suspension_goes() -> None:
    world = running()
    late = world.clusters[world.active]
    world.change(suspend=True)
    world.settle()
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    world.clusters[late.name] = late
    world.reconcile()
    assert not world.clusters


@pytest.mark.parametrize("since", ["never", "2026-01-01", "2026-01-01T00:00:00", ""])
def test_a_time_that_was_edited_is_written_anew(since: str) -> None:
    world = running()
    left = World(service_of(group()))
    left.settle()
    (other,) = left.clusters.values()
    annotations = {**other.metadata.annotations, Annotation.UNUSED_SINCE.value: since}
    world.clusters["left"] = replace(other, metadata=replace(other.metadata, name="left", annotations=annotations))
    world.settle()
    assert list(world.clusters) == [world.active]


def test_a_service_that_does_not_come_up_in_time_gives_its_cards_back_until_its_spec_changes() -> None:
    world = World(service_of(group(), annotations={Annotation.INITIALIZING_TIMEOUT.value: "5m"}), cards=0)
    world.settle(4)
    assert world.clusters
    world.now += timedelta(minutes=6)
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "InitializingTimeout")
    assert not world.clusters
    world.settle(4)
    assert not world.clusters
    world.cards = 5
    world.change_cluster(group(image="ray:2"), image="ray:2")
    world.settle()
    assert world.ready()


def test_an_invalid_spec_changes_nothing_and_is_left_by_correcting_it() -> None:
    world = running()
    decision = decide(replace(world.snapshot(), problems="spec.x: it is wrong."))
    assert len(decision.actions) == 1
    world.apply(decision.actions[0])
    assert situation(world, ServiceCondition.READY) == ("False", "ValidationFailed")
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")


def test_while_kuberay_is_active_only_that_is_said() -> None:
    world = running()
    decision = decide(replace(world.snapshot(), other_operator="ray-operator in namespace kuberay"))
    assert len(decision.actions) == 1
    world.apply(decision.actions[0])
    assert situation(world, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("True", "OtherOperatorActive")
    assert decide(replace(world.snapshot(), other_operator="ray-operator in namespace kuberay")).actions == ()
    world.reconcile()
    assert situation(world, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("", "")


def test_a_service_that_goes_is_let_go_of() -> None:
    world = running()
    meta = replace(world.service.metadata, deletion_timestamp=START, finalizers=(Finalizer.SERVICE.value, "other"))
    decision = decide(replace(world.snapshot(), service=replace(world.service, metadata=meta)))
    assert decision.actions == (RemoveFinalizer(name=Finalizer.SERVICE.value),)


def test_a_service_that_another_manages_is_left_alone() -> None:
    world = World(service_of(group(), managedBy="kueue.x-k8s.io/multikueue"))
    assert decide(world.snapshot()).actions == ()
