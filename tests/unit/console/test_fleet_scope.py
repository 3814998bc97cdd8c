"""What is left of the fleet for somebody with few rights."""

from datetime import UTC, datetime

from msgspec.structs import replace

from gpu_control_plane.api.gpudevice import DeviceStatus, GPUDevice, Reservation, User
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.fleet_caches import HIDDEN, FleetScope, in_scope
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.views.fleet import Fleet
from unit.views.builders import card


def _user(namespace: str) -> User:
    return User(namespace=namespace, pod="train-0", container="main", resource="gpu.deckhouse.io/training", units=1)


def _held(name: str, *namespaces: str, reserved_by: str | None = None) -> GPUDevice:
    reservation = None
    if reserved_by is not None:
        reservation = Reservation(token="t", holder=f"{reserved_by}/p", expires_at=datetime(2026, 1, 1, tzinfo=UTC))
    status = DeviceStatus(used_by=tuple(map(_user, namespaces)), reservation=reservation)
    return replace(card(name), status=status)


def _fleet() -> Fleet:
    cards = {
        "a": _held("a", "team-a"),
        "b": _held("b", "team-b", "team-a"),
        "c": _held("c", reserved_by="team-b"),
        "d": _held("d"),
    }
    waiting = [WaitingPod(metadata=ObjectMeta(name="p", namespace=name)) for name in ("team-a", "team-b")]
    return Fleet(cards=cards, waiting=waiting)


def test_pods_of_other_namespaces_are_not_named_and_still_count() -> None:
    seen = in_scope(_fleet(), FleetScope(namespaces=frozenset({"team-a"})))
    assert seen.cards["a"] is not None
    assert [user.namespace for user in seen.cards["a"].status.used_by] == ["team-a"]
    assert [(user.namespace, user.pod, user.units) for user in seen.cards["b"].status.used_by] == [
        (HIDDEN, HIDDEN, 1),
        ("team-a", "train-0", 1),
    ]
    reservation = seen.cards["c"].status.reservation
    assert reservation is not None
    assert reservation.holder == HIDDEN
    assert [pod.metadata.namespace for pod in seen.waiting] == ["team-a"]


def test_cards_without_foreign_pods_are_the_same_objects() -> None:
    fleet = _fleet()
    seen = in_scope(fleet, FleetScope(namespaces=frozenset({"team-a"})))
    assert seen.cards["a"] is fleet.cards["a"]
    assert seen.cards["d"] is fleet.cards["d"]


def test_who_may_list_all_pods_sees_all() -> None:
    fleet = _fleet()
    assert in_scope(fleet, FleetScope()) is fleet


def test_a_kind_that_may_not_be_listed_is_missing_and_said_to_be() -> None:
    seen = in_scope(_fleet(), FleetScope(hidden=(GPUDevice, GPUPool)))
    assert not seen.cards
    assert seen.lacks("gpudevices")
    assert seen.lacks("gpupools")
    assert not seen.lacks("nodes")
