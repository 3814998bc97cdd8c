"""What is refused, what is warned about, and what is let through."""

from datetime import UTC, datetime

import pytest

from gpu_control_plane.admission.pools import review
from gpu_control_plane.api.access import Access
from gpu_control_plane.api.allocation import Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.gpupool import GPUPool, PoolResource, PoolSpec
from gpu_control_plane.kube.objects import ObjectMeta

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHARED = PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=2))


def pool(name: str, resource: str | None = None, **spec: object) -> GPUPool:
    named = {"resource": PoolResource(name=resource)} if resource else {}
    return GPUPool(
        metadata=ObjectMeta(name=name, creation_timestamp=NOON),
        spec=PoolSpec(**named, **spec),  # type: ignore[arg-type]
    )


TRAINING = pool("training")
RIVAL = pool("another", resource="gpu.deckhouse.io/training")


def test_a_pool_of_its_own_is_let_through() -> None:
    response = review(pool("serving"), None, [TRAINING])
    assert (response.allowed, response.warnings) == (True, ())


def test_a_new_pool_may_not_take_the_resource_of_another_even_in_the_same_second() -> None:
    response = review(RIVAL, None, [TRAINING])
    assert not response.allowed
    assert "training" in response.message
    assert "spec.resource.name" in response.message


def test_a_change_may_not_take_the_resource_of_another() -> None:
    late = GPUPool(metadata=ObjectMeta(name="zebra", creation_timestamp=NOON), spec=RIVAL.spec)
    assert not review(late, pool("zebra"), [TRAINING, pool("zebra")]).allowed


def test_a_pool_that_collides_already_may_be_changed_and_is_warned() -> None:
    late = GPUPool(metadata=ObjectMeta(name="zebra", creation_timestamp=NOON), spec=RIVAL.spec)
    response = review(late, late, [TRAINING, late])
    assert response.allowed
    assert response.warnings


@pytest.mark.parametrize(
    "access",
    [
        Access(users=("system:serviceaccount:d8-gpu-operator:gpu-control-plane-controller",)),
        Access(users=("system:serviceaccount:kube-system:replicaset-controller",)),
        Access(users=("system:kube-controller-manager",)),
        Access(groups=("system:serviceaccounts",)),
        Access(groups=("system:serviceaccounts:kube-system",)),
    ],
)
def test_a_controller_in_whose_name_everybodys_pods_are_created_is_warned_about(access: Access) -> None:
    """The sentence that refuses a pod of a workload once named it, and following that opens the pool to everybody."""
    response = review(pool("serving", access=access), None, [TRAINING])
    (warning,) = response.warnings
    assert response.allowed
    assert warning.startswith(f"spec.access names {(*access.users, *access.groups)[0]}: ")


def test_people_and_accounts_of_their_namespaces_are_not_warned_about() -> None:
    users = ("alice", "system:serviceaccount:research:argo-controller", "system:serviceaccount:kube-system:backup")
    access = Access(users=users, groups=("ml", "system:serviceaccounts:research"))
    assert review(pool("serving", access=access), None, [TRAINING]).warnings == ()


def test_our_controllers_are_those_of_the_namespace_that_they_run_in() -> None:
    access = Access(users=("system:serviceaccount:gpu:gpu-control-plane-controller",))
    assert review(pool("serving", access=access), None, [], "gpu").warnings
    assert not review(pool("serving", access=access), None, []).warnings
