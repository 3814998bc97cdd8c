"""Rows and figures say what the objects say."""

import msgspec
import pytest

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.gpupool import GPUPool, PoolPhase
from gpu_control_plane.api.namespace import QuotaSpec, QuotaStatus, ResourceQuota
from gpu_control_plane.api.pod import PodStatus
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.views.cards import CardFilter, card_row
from gpu_control_plane.views.fleet import Missing
from gpu_control_plane.views.loads import Load
from gpu_control_plane.views.nodes import node_rows
from gpu_control_plane.views.overview import TodoKind, overview
from gpu_control_plane.views.pods import Hold, pod_rows
from gpu_control_plane.views.pools import Tenant, pool_rows
from gpu_control_plane.views.upgrades import upgrade_progress
from unit.views.builders import NOW, card, fleet, node, pool, state, waiting_pod

TRAINING = "gpu.deckhouse.io/training"
NO_CARDS = Missing(kind="gpudevices.gpu.deckhouse.io", why="you may not")


def test_the_users_of_a_card_are_counted_by_pod() -> None:
    row = card_row(card(pods=("team-a/x", "team-a/x", "team-b/y"), utilisation=50))
    assert [(str(user), user.units) for user in row.users] == [("team-a/x", 2), ("team-b/y", 1)]
    assert row.load is Load.COMPUTING


def test_the_api_server_selects_cards() -> None:
    assert CardFilter(pool="training", node="n", state="Faulted").selection.fields == (
        "status.poolRef.name=training,spec.nodeName=n,status.state=Faulted"
    )
    assert CardFilter(pending=True, labels="a=b").selection.params() == {
        "labelSelector": "a=b",
        "fieldSelector": "status.poolRef.name=",
    }
    assert CardFilter().selection.params() == {}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (fleet(state(), node()), "Ready"),
        (fleet(state()), "Ready"),
        (fleet(state(), node(cordoned=True)), "Cordoned"),
        (fleet(state(), node(ready=False)), "NodeNotReady"),
        (fleet(state(ready="False", reason="DriverNotReady"), node(cordoned=True)), "DriverNotReady"),
    ],
)
def test_a_node_has_one_word_for_how_it_fares(given: object, word: str) -> None:
    (row,) = node_rows(given)  # type: ignore[arg-type]
    assert row.state == word


def quota(hard: int, used: int) -> ResourceQuota:
    key = f"requests.{TRAINING}"
    return ResourceQuota(
        metadata=ObjectMeta(name="q", namespace="team-a"),
        spec=QuotaSpec(hard={key: str(hard)}),
        status=QuotaStatus(used={key: str(used)}),
    )


@pytest.mark.parametrize(
    ("tenant", "units", "left"),
    [
        (Tenant(namespace="team-a", quotas=()), 6, None),
        (Tenant(namespace="team-a", quotas=(quota(8, 6),)), 2, 2),
        (Tenant(namespace="team-a", quotas=(quota(8, 6), quota(7, 6))), 1, 1),
        (Tenant(namespace="team-a", quotas=(quota(8, 9),)), 0, 0),
        (Tenant(namespace="team-a", quotas=(quota(80, 0),)), 6, 80),
        (Tenant(namespace="team-a"), 6, None),
    ],
)
def test_a_namespace_gets_what_is_free_within_its_quotas(tenant: Tenant, units: int, left: int | None) -> None:
    (row,) = pool_rows(fleet(pool(total=64, used=58, available=6)), tenant)
    assert row.obtainable == units
    assert row.resources[0].obtainable is not None
    assert row.resources[0].obtainable.quota_left == left


def closed(found: GPUPool) -> GPUPool:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, access=None))


def test_a_namespace_gets_nothing_without_access_or_from_a_pool_that_is_not_ready() -> None:
    free = pool(total=6, available=6)
    tenant = Tenant(namespace="team-a")
    assert pool_rows(fleet(closed(free)), tenant)[0].obtainable == 0
    may_use = msgspec.structs.replace(tenant, may_use=lambda name: name == "training")
    assert pool_rows(fleet(closed(free)), may_use)[0].obtainable == 6
    busy = pool(total=6, available=6, phase=PoolPhase.MAINTENANCE)
    assert pool_rows(fleet(busy), tenant)[0].obtainable == 0


def test_what_a_pool_computes_is_not_guessed_without_cards() -> None:
    cards = card(pods=("a/b",), utilisation=0), card(slot=2, pods=("a/b",), utilisation=90)
    assert [(row.held_idle, row.computing) for row in pool_rows(fleet(pool(), *cards))] == [(1, 1)]
    assert [(row.held_idle, row.computing) for row in pool_rows(fleet(pool(), missing=(NO_CARDS,)))] == [(None, None)]


def test_a_pod_computes_if_one_of_its_cards_does() -> None:
    cards = (
        card(slot=1, pods=("team-a/busy",), utilisation=90),
        card(slot=2, pods=("team-a/busy",), utilisation=0),
        card(slot=3, pods=("team-a/lazy",), utilisation=0),
        card(slot=4, pods=("team-b/other",)),
    )
    found = {row.name: row for row in pod_rows(fleet(*cards))}
    assert {name: row.load for name, row in found.items()} == {
        "busy": Load.COMPUTING,
        "lazy": Load.HELD_IDLE,
        "other": Load.HELD,
    }
    assert (found["busy"].units, found["lazy"].idle_since, found["busy"].idle_since) == (2, NOW, None)
    assert [row.name for row in pod_rows(fleet(*cards), namespace="team-b")] == ["other"]


def test_a_waiting_pod_has_the_reason_of_its_explanation_or_none_where_that_would_be_a_guess() -> None:
    objects = pool(), state(), node(), waiting_pod("train-7", units=4)
    (row,) = pod_rows(fleet(*objects))
    assert (row.status, row.reason, row.units, row.pools) == (Hold.WAITS, "NoCards", 4, ("training",))
    (hidden,) = pod_rows(fleet(*objects, missing=(NO_CARDS,)))
    assert (hidden.status, hidden.reason) == (Hold.WAITS, None)


def test_who_may_not_read_cards_sees_the_pods_of_the_own_namespace() -> None:
    """Nothing is said of what they do."""
    running = msgspec.structs.replace(waiting_pod("train-0", units=2), status=PodStatus(phase="Running"))
    hidden = msgspec.structs.replace(fleet(pool(), missing=(NO_CARDS,)), placed=[running])
    (row,) = pod_rows(hidden, namespace="team-a")
    assert (row.status, row.load, row.units, row.pools) == (Hold.HOLDS, Load.HELD, 2, ("training",))


def test_the_overview_has_what_needs_a_person_with_the_command_that_helps() -> None:
    found = overview(
        fleet(
            pool(),
            state(),
            state("h200-2", ready="False", reason="DriverNotReady"),
            node(),
            node("h200-2", state="upgrade-failed", FAILURE="the driver pod does not start"),
            card(slot=1, state=DeviceState.FAULTED),
            card(slot=2, state=DeviceState.UNASSIGNED, pool=None, pending="AwaitingApproval"),
            card(slot=3, pods=("team-a/nb",), utilisation=0),
            card(slot=4, state=DeviceState.UNASSIGNED, pool=None, pending="PoolNotFound"),
            waiting_pod("train-7"),
        )
    )
    assert [(todo.kind, todo.urgent) for todo in found.todo] == [
        (TodoKind.FAULTED, True),
        (TodoKind.NODES, True),
        (TodoKind.UPGRADE_FAILED, True),
        (TodoKind.IGNORED_APPROVALS, True),
        (TodoKind.APPROVAL, True),
        (TodoKind.PODS_WAIT, False),
        (TodoKind.HELD_IDLE, False),
    ]
    by_kind = {todo.kind: todo for todo in found.todo}
    assert by_kind[TodoKind.FAULTED].command == "kubectl gpu explain device h200-1-0000-01-00-0"
    assert by_kind[TodoKind.NODES].sentence == "node h200-2 is not as it should be: DriverNotReady"
    assert (found.nodes, found.nodes_ready, found.cards, found.pods_holding, found.pods_waiting) == (2, 1, 4, 1, 1)
    assert found.loads == {"HeldIdle": 1, "OutOfService": 3}


def test_a_healthy_fleet_needs_nobody() -> None:
    healthy = fleet(pool(total=1, used=1), state(), node(), card(pods=("team-a/x",), utilisation=99))
    assert overview(healthy).todo == ()


def test_a_cluster_without_our_kinds_is_told_as_that() -> None:
    absent = Missing(kind="gpupools.gpu.deckhouse.io", why="not installed", installed=False)
    assert [todo.kind for todo in overview(fleet(missing=(absent,))).todo] == [TodoKind.NOTHING_INSTALLED]


def test_an_upgrade_is_counted_by_the_labels_of_nodes_and_bad_times_are_ignored() -> None:
    progress = upgrade_progress(
        fleet(
            node("a", state="upgrade-done"),
            node("b", state="upgrade-required", skipped="yes", STEP_SINCE="soon"),
            node("c", state="drain-required", STEP_SINCE="1763294400"),
            node("d", state="upgrade-failed", FAILURE="no driver", STEP_SINCE="9" * 30),
            node("e"),
        )
    )
    counts = progress.total, progress.done, progress.in_progress, progress.waiting, progress.failed, progress.skipped
    assert counts == (4, 1, 1, 1, 1, 1)
    assert [each.node for each in progress.nodes] == ["d", "c", "b", "a"]
    assert [each.since is not None for each in progress.nodes] == [False, True, False, False]
    assert progress.under_way
