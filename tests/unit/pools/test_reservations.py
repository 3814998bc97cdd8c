"""Which pods units are promised to: never more than there are, the oldest first, all on one node."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.examples import device as example_device
from gpu_control_plane.api.gpudevice import DeviceStatus, GPUDevice, Reservation, User
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.objects import Key, ObjectMeta
from gpu_control_plane.pools.reservations import (
    NOTHING,
    Demand,
    Reservations,
    demands,
    reserve,
    reserved_cards,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TTL = timedelta(minutes=5)
TRAINING = "gpu.deckhouse.io/training"
POOL = GPUPool(metadata=ObjectMeta(name="training"), spec=PoolSpec())


def waits(name: str, units: int = 1, *, age: float = 10, **more: int) -> Demand:
    asked = {TRAINING: units, **more}
    return Demand(key=Key(name, "team"), token=name, created=NOON - timedelta(seconds=age), units=asked)


def made(*pods: Demand, before: Reservations = NOTHING, **free: int) -> Reservations:
    return made_of(pods, free, before)


def made_of(pods: Iterable[Demand], free: Mapping[str, int], before: Reservations = NOTHING) -> Reservations:
    nodes = {node: {TRAINING: units} for node, units in free.items()}
    return reserve(pods, nodes, ttl=TTL, now=NOON, before=before)


def promised(reservations: Reservations) -> dict[str, str]:
    return {promise.pod.key.name: promise.node for promise in reservations.promises}


def test_the_oldest_are_first() -> None:
    assert promised(made(waits("young", age=1), waits("old", age=9), a=1)) == {"old": "a"}


def test_all_units_of_a_pod_are_on_one_node() -> None:
    assert promised(made(waits("large", 4), waits("small", 2, age=1), a=3, b=3)) == {"small": "a"}


def test_a_pod_takes_the_node_that_it_fits_best() -> None:
    assert promised(made(waits("two", 2), waits("four", 4, age=1), a=5, b=2)) == {"two": "b", "four": "a"}


def test_a_pod_keeps_its_node_while_that_has_room() -> None:
    before = made(waits("one"), b=1)
    assert promised(made(waits("one"), before=before, a=1, b=8)) == {"one": "b"}
    assert promised(made(waits("one"), before=before, a=1, b=0)) == {"one": "a"}


def test_resources_of_a_mixed_layout_are_promised_on_one_node() -> None:
    nodes: Mapping[str, Mapping[str, int]] = {"a": {TRAINING: 1}, "b": {TRAINING: 2, "parts": 1}}
    found = reserve([waits("both", parts=1)], nodes, ttl=TTL, now=NOON)
    assert (promised(found), found.units) == ({"both": "b"}, {TRAINING: 1, "parts": 1})


def test_a_promise_ends_with_its_time_and_others_get_the_units() -> None:
    found = made(waits("late", age=300), waits("next"), a=2)
    assert promised(found) == {"next": "a"}
    assert [pod.key.name for pod in found.expired] == ["late"]
    assert found.next_expiry == NOON + timedelta(seconds=290)


def test_a_pod_for_which_nothing_is_free_has_nothing_that_could_expire() -> None:
    assert made(waits("late", age=300), waits("next"), a=1).expired == ()
    assert made(waits("late", age=300)).expired == ()


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8)),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 400)), max_size=12),
)
def test_never_more_is_promised_than_is_free(free: dict[str, int], asked: list[tuple[int, int]]) -> None:
    pods = [waits(f"pod-{number}", units, age=age) for number, (units, age) in enumerate(asked)]
    first = made_of(pods, free)
    taken = dict.fromkeys(free, 0)
    for promise in first.promises:
        taken[promise.node] += promise.pod.units[TRAINING]
        assert promise.expires_at > NOON
    assert all(taken[node] <= free[node] for node in free)
    held = {promise.pod.key for promise in first.promises} | {pod.key for pod in first.expired}
    left = {node: free[node] - taken[node] for node in free}
    for pod in pods:
        if pod.key not in held:
            assert all(pod.units[TRAINING] > units for units in left.values()), "it would have fitted"
    assert made_of(reversed(pods), free, first) == first, "the same again, whatever the order"


def pod(*, gated: bool = False, **fields: Any) -> Pod:
    body: dict[str, Any] = {
        "metadata": {"name": "x", "namespace": "team", "uid": "7", "creationTimestamp": NOON.isoformat(), **fields},
        "spec": {"containers": [{"resources": {"limits": {TRAINING: "2"}}}]},
        "status": {"phase": "Pending"},
    }
    if gated:
        body["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("annotation", "token"),
    [({"gpu.deckhouse.io/reservation": "abc"}, "abc"), ({}, "7"), ({"gpu.deckhouse.io/reservation": "a" * 64}, "7")],
    ids=["the webhook's", "without the webhook", "too long to be the webhook's"],
)
def test_a_promise_is_named_by_the_token_of_the_pod(annotation: dict[str, str], token: str) -> None:
    (found,) = demands([pod(annotations=annotation)], POOL)
    assert (found.token, found.units, found.key) == (token, {TRAINING: 2}, Key("x", "team"))


@pytest.mark.parametrize("gone", [pod(gated=True), pod(deletionTimestamp=NOON.isoformat())], ids=["gated", "deleted"])
def test_pods_that_will_get_no_node_are_promised_nothing(gone: Pod) -> None:
    assert list(demands([gone], POOL)) == []


def card(index: int, *, used: bool = False, shows: Reservation | None = None) -> GPUDevice:
    users = (User(namespace="team", pod="x", container="main", resource=TRAINING, units=1),) if used else ()
    device = example_device(node="node-a", index=index)
    return msgspec.structs.replace(device, status=DeviceStatus(used_by=users, reservation=shows))


def shown(promises: Reservations, *cards: GPUDevice, units: int = 1) -> dict[str, str]:
    found = reserved_cards(promises.promises, cards, {card.name: {TRAINING: units} for card in cards})
    return {name: reservation.holder for name, reservation in found.items()}


def test_promises_are_shown_on_unused_cards() -> None:
    used, *free = card(0, used=True), card(1), card(2), card(3)
    found = shown(made(waits("pair", 2), a=3), used, *free)
    assert found == {free[0].name: "team/pair", free[1].name: "team/pair"}


def test_a_card_goes_on_showing_the_promise_that_it_shows() -> None:
    promises = made(waits("one"), a=2)
    known = Reservation(token="one", holder="team/one", expires_at=promises.promises[0].expires_at)
    assert shown(promises, card(0), card(1, shows=known)) == {card(1).name: "team/one"}


def test_a_shared_card_is_enough_for_several_units() -> None:
    assert shown(made(waits("three", 3), a=8), card(0), card(1), units=4) == {card(0).name: "team/three"}
