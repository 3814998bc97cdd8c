"""What a backup holds: decisions of people, each once, and no secret."""

from datetime import UTC, datetime, timedelta

import msgspec

from gpu_control_plane.api import examples
from gpu_control_plane.api.gpudevice import Change
from gpu_control_plane.backup.collect import Decisions, backup_of
from gpu_control_plane.backup.file import Backup, write_backup
from unit.backup.clusters import Decided, card, cluster, policy, pool

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
