"""What the conditions of a RayService say, situation by situation."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Annotation, Finalizer
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.ray.service.actions import RemoveFinalizer, WriteStatus
from gpu_control_plane.ray.service.decide import decide
from unit.ray.service.builders import POOL, START, group, service_of
from unit.ray.service.service_model import RayServiceModel, running, situation

ONE = {POOL: 1}


def test_conditions_of_a_service_that_comes_up() -> None:
    model = RayServiceModel(service_of(group()))
    model.reconcile()
    assert situation(model, ServiceCondition.READY) == ("False", "Initializing")
    assert situation(model, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "Initializing")
    model.reconcile()
    assert situation(model, ServiceCondition.UPGRADE_IN_PROGRESS) == ("Unknown", "NoActiveCluster")
    model.settle()
    assert situation(model, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")
    assert situation(model, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "NoPendingCluster")
    assert model.service.status.service_status == "Running"


def test_conditions_of_a_service_that_loses_its_pods() -> None:
    model = running()
    for pod in list(model.pods):
        model.delete_pod(pod)
    model.reconcile()
    assert situation(model, ServiceCondition.READY) == ("False", "ZeroServeEndpoints")
    assert model.service.status.service_status == ""


def test_conditions_of_a_suspended_service() -> None:
    model = running()
    model.change(suspend=True)
    decision = model.reconcile(crash_after=1)
    assert len(decision.actions) > 1, "it is said before anything goes"
    assert situation(model, ServiceCondition.SUSPENDING) == ("True", "SuspendRequested")
    assert situation(model, ServiceCondition.READY) == ("False", "SuspendInProgress")
    model.change(suspend=False)
    model.reconcile()
    assert situation(model, ServiceCondition.SUSPENDING) == ("True", "SuspendInProgress")
    assert not model.clusters, "it is done to the end"
    model.reconcile()
    assert situation(model, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert situation(model, ServiceCondition.READY) == ("False", "SuspendComplete")
    model.reconcile()
    assert situation(model, ServiceCondition.SUSPENDED) == ("False", "RayServiceResumed")
    assert situation(model, ServiceCondition.READY) == ("False", "Initializing")
    model.settle()
    assert model.ready()


def test_what_appears_after_a_suspension_goes() -> None:
    model = running()
    late = model.clusters[model.active]
    model.change(suspend=True)
    model.settle()
    assert situation(model, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    model.clusters[late.name] = late
    model.reconcile()
    assert not model.clusters


@pytest.mark.parametrize("since", ["never", "2026-01-01", "2026-01-01T00:00:00", ""])
def test_a_time_that_was_edited_is_written_anew(since: str) -> None:
    model = running()
    left = RayServiceModel(service_of(group()))
    left.settle()
    (other,) = left.clusters.values()
    annotations = {**other.metadata.annotations, Annotation.UNUSED_SINCE.value: since}
    model.clusters["left"] = replace(other, metadata=replace(other.metadata, name="left", annotations=annotations))
    model.settle()
    assert list(model.clusters) == [model.active]


def test_a_service_that_does_not_come_up_in_time_gives_its_cards_back_until_its_spec_changes() -> None:
    model = RayServiceModel(service_of(group(), annotations={Annotation.INITIALIZING_TIMEOUT.value: "5m"}), cards=0)
    model.settle(4)
    assert model.clusters
    model.now += timedelta(minutes=6)
    model.reconcile()
    assert situation(model, ServiceCondition.READY) == ("False", "InitializingTimeout")
    assert not model.clusters
    model.settle(4)
    assert not model.clusters
    model.cards = 5
    model.change_cluster(group(image="ray:2"), image="ray:2")
    model.settle()
    assert model.ready()


def test_an_invalid_spec_changes_nothing_and_is_left_by_correcting_it() -> None:
    model = running()
    decision = decide(replace(model.snapshot(), problems="spec.x: it is wrong."))
    assert len(decision.actions) == 1
    model.apply(decision.actions[0])
    assert situation(model, ServiceCondition.READY) == ("False", "ValidationFailed")
    assert model.service.status.num_serve_endpoints > 0
    silent = decide(replace(model.snapshot(), problems="spec.x: it is wrong.", endpoints=0)).actions[0]
    assert isinstance(silent, WriteStatus)
    assert silent.status.num_serve_endpoints == 0
    model.reconcile()
    assert situation(model, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")


def test_while_kuberay_is_active_only_that_is_said() -> None:
    model = running()
    decision = decide(replace(model.snapshot(), other_operator="ray-operator in namespace kuberay"))
    assert len(decision.actions) == 1
    model.apply(decision.actions[0])
    assert situation(model, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("True", "OtherOperatorActive")
    assert decide(replace(model.snapshot(), other_operator="ray-operator in namespace kuberay")).actions == ()
    model.reconcile()
    assert situation(model, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("", "")


def test_a_service_that_goes_is_let_go_of() -> None:
    model = running()
    meta = replace(model.service.metadata, deletion_timestamp=START, finalizers=(Finalizer.SERVICE.value, "other"))
    decision = decide(replace(model.snapshot(), service=replace(model.service, metadata=meta)))
    assert decision.actions == (RemoveFinalizer(name=Finalizer.SERVICE.value),)


def test_a_service_that_another_manages_is_left_alone() -> None:
    model = RayServiceModel(service_of(group(), managedBy="kueue.x-k8s.io/multikueue"))
    assert decide(model.snapshot()).actions == ()
