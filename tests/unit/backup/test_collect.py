"""What a backup holds: decisions of people, each once, and no secret."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api import examples
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import Change, GPUDevice
from gpu_control_plane.backup.collect import Decisions, backup_of
from gpu_control_plane.backup.file import Backup, read_backup, write_backup
from unit.backup.clusters import Decided, approval, card, cluster, policy, pool

NOW = datetime(2026, 5, 4, 12, 0, 0, 123, tzinfo=UTC)
ONE, TWO = ("worker-1", 0), ("worker-1", 1)


def backup(decisions: Decisions) -> Backup:
    return backup_of(decisions, cluster="https://here", now=NOW)


def test_cards_about_which_nothing_was_decided_are_left_out() -> None:
    found = backup(cluster([card(ONE), card(TWO, Decided(pool="training"))]))
    assert [(each.uuid, each.pool) for each in found.cards] == [("GPU-worker-1-1", "training")]


def test_the_order_in_which_objects_were_read_makes_no_difference() -> None:
    cards = [card(ONE, Decided(pool="training")), card(TWO, Decided(hold="broken fan"))]
    pools = [pool("training"), pool("inference")]
    assert write_backup(backup(cluster(cards, pools))) == write_backup(backup(cluster(cards[::-1], pools[::-1])))


def test_pools_come_the_oldest_first() -> None:
    young, old = (
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, creation_timestamp=created))
        for each, created in ((pool("a"), NOW), (pool("z"), NOW - timedelta(days=1)))
    )
    assert [each.name for each in backup(cluster(pools=[young, old])).pools] == ["z", "a"]


def test_the_reason_is_found_in_the_history() -> None:
    assigned = card(ONE, Decided(pool="training"))
    why = Change(what="Assigned to training", who="alice", when=NOW, why="new rack")
    told = msgspec.structs.replace(assigned, status=msgspec.structs.replace(assigned.status, history=(why,)))
    assert backup(cluster([told])).cards[0].reason == "new rack"


def test_a_card_that_cannot_be_recognised_is_named() -> None:
    known = card(ONE, Decided(pool="training"))
    assert known.status.hardware is not None
    hardware = msgspec.structs.replace(known.status.hardware, uuid=None)
    unknown = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, hardware=hardware))
    found = backup(cluster([unknown]))
    assert (found.cards, len(found.left_out)) == ((), 1)
    assert known.name in found.left_out[0]


def test_cards_that_are_still_to_come_are_kept() -> None:
    """A cluster may be saved before all machines of an earlier restore have joined."""
    found = backup(cluster([card(ONE, Decided(pool="inference"))], approvals=[examples.approval("worker-9", 1)]))
    assert [(each.node, each.pool) for each in found.cards] == [("worker-1", "inference"), ("worker-9", "training")]


decided = st.builds(
    Decided,
    pool=st.sampled_from([None, "training"]),
    hold=st.sampled_from([None, "broken fan"]),
    ignore=st.booleans(),
).filter(bool)
places = st.tuples(st.sampled_from(["worker-1", "worker-2"]), st.integers(0, 1))
uuids = st.sampled_from(["GPU-a", "GPU-b", "GPU_my card/1"])


@given(
    st.lists(st.builds(card, places, decided, uuids), max_size=4, unique_by=lambda each: each.name),
    st.lists(st.builds(approval, st.sampled_from(["a", "b", "c"]), places, decided, uuids), max_size=4),
    st.sets(st.sampled_from(["worker-1", "worker-2"])),
)
def test_every_backup_is_one_that_restore_takes(
    cards: list[GPUDevice], approvals: list[GPUApproval], ready: set[str]
) -> None:
    """Whatever a cluster has twice."""
    found = backup(cluster(cards, approvals=approvals, ready=ready))
    assert read_backup(write_backup(found), "gpus.yaml") == found
    told = {each.status.hardware.uuid for each in cards if each.status.hardware} | {
        each.spec.uuid for each in approvals
    }
    assert {each.uuid for each in found.cards} == told - {"GPU_my card/1"} or found.left_out


def test_of_a_machine_that_joined_again_the_node_that_answers_is_kept() -> None:
    """Its old Node is still there, with the same cards."""
    before = card(("worker-1", 0), Decided(pool="training"), "GPU-a")
    now = card(("worker-2", 0), Decided(hold="new"), "GPU-a")
    for nodes in ([before, now], [now, before]):
        found = backup(cluster(nodes, ready={"worker-2"}))
        assert [(each.node, each.hold) for each in found.cards] == [("worker-2", "new")]
        assert [sentence.split(" is not")[0] for sentence in found.left_out] == [f"GPUDevice {before.name}"]


def test_a_card_is_named_only_if_a_decision_about_it_is_lost() -> None:
    training, held = Decided(pool="training"), Decided(hold="broken fan")
    moved = [card(ONE, training, "GPU-a"), card(TWO, training, "GPU-a")]
    assert backup(cluster(moved)).left_out == ()
    overruled = approval("my-card", ONE, held)
    assert backup(cluster([card(ONE, training)], approvals=[overruled])).left_out == ()
    lost = approval("my-card", ONE, held, "GPU-other")
    assert backup(cluster([card(ONE, training)], approvals=[lost])).left_out[0].startswith("GPUApproval my-card is not")


def test_secrets_are_left_out_and_named() -> None:
    env = [{"name": "HTTPS_PROXY", "value": "http://me:hunter2@proxy"}, {"name": "DEBUG", "value": "1"}]
    stack = policy(driver={"env": env, "licensingConfig": {"secretName": "licence"}}, dcgm={"args": ["token=abc123"]})
    found = backup(msgspec.structs.replace(cluster(), policies=(stack,)))
    text = write_backup(found)
    assert "hunter2" not in text
    assert "abc123" not in text
    assert found.cluster_policies[0].spec == {
        "driver": {"env": [{"name": "DEBUG", "value": "1"}], "licensingConfig": {"secretName": "licence"}},
        "dcgm": {"args": []},
    }
    assert [sentence.split(" looks")[0] for sentence in found.left_out] == [
        "ClusterPolicy cluster-policy: spec.driver.env[HTTPS_PROXY]",
        "ClusterPolicy cluster-policy: spec.dcgm.args[0]",
    ]
