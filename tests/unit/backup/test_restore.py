"""A restore as a plan: every decision is brought back once, and nothing that stands is overwritten."""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api import examples
from gpu_control_plane.api.gpupool import MaintenanceStrategy, PoolMaintenance, PoolSpec
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.backup.collect import Decisions, backup_of
from gpu_control_plane.backup.file import Backup
from gpu_control_plane.backup.restore import RestorePlan, plan_restore
from unit.backup.clusters import NODES, NOTHING, POOLS, Decided, Place, approval, card, cluster, pool, restored, uuid_of

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
PLACES: list[Place] = [(node, index) for node in NODES for index in range(2)]
ONE, TWO = PLACES[:2]

decided = st.builds(
    Decided,
    pool=st.sampled_from([None, *POOLS]),
    hold=st.sampled_from([None, "broken fan"]),
    ignore=st.booleans(),
)
decisions_by_place = st.fixed_dictionaries(dict.fromkeys(PLACES, decided))


def saved(found: Decisions) -> Backup:
    return backup_of(found, cluster="https://here", now=NOW)


def plan(backup: Backup, found: Decisions, *, overwrite: bool = False) -> RestorePlan:
    return plan_restore(backup, found, file="gpus.yaml", overwrite=overwrite)


def written(made: RestorePlan) -> list[str]:
    return [edit.name for edit in made.cards.edits] + [each.name for each in (*made.awaited, *made.objects)]


@given(decisions_by_place)
def test_a_backup_of_a_cluster_changes_nothing_in_it(given_decisions: dict[Place, Decided]) -> None:
    found = cluster([card(*each) for each in given_decisions.items()], map(pool, POOLS))
    made = plan(saved(found), found, overwrite=True)
    assert (written(made), made.cards.refusals) == ([], ())


@given(decisions_by_place, st.sets(st.sampled_from(PLACES)))
def test_a_new_cluster_gets_every_decision_once_whatever_has_joined(
    given_decisions: dict[Place, Decided], joined: set[Place]
) -> None:
    before = saved(cluster([card(*each) for each in given_decisions.items()], map(pool, POOLS)))
    empty = cluster([card(place) for place in joined])
    made = plan(before, empty)
    names = [edit.name for edit in made.cards.edits] + [each.name for each in made.awaited]
    assert sorted(names) == sorted(card(place).name for place, each in given_decisions.items() if each)
    assert made.cards.refusals == ()
    after = saved(restored(empty, made))
    assert [_told(each) for each in after.cards] == [_told(each) for each in before.cards]
    assert plan(before, restored(empty, made), overwrite=True).cards.edits == ()
    assert {each.name for each in after.pools} == set(POOLS)


@given(decisions_by_place, decisions_by_place)
def test_what_stands_is_never_overwritten_unless_asked(then: dict[Place, Decided], now: dict[Place, Decided]) -> None:
    before = saved(cluster([card(*each) for each in then.items()], map(pool, POOLS)))
    found = cluster([card(*each) for each in now.items()], map(pool, POOLS))
    made = plan(before, found)
    after = restored(found, made).fleet.cards
    for each in found.fleet.cards.values():
        for key in (Annotation.ASSIGNMENT, Annotation.HOLD):
            held = each.metadata.annotations.get(key)
            assert held is None or after[each.name].metadata.annotations.get(key) == held
        assert not each.ignored or after[each.name].ignored
    forced = saved(restored(found, plan(before, found, overwrite=True)))
    assert {(each.uuid, each.pool, each.ignore) for each in before.cards} <= {
        (each.uuid, each.pool, each.ignore) for each in forced.cards
    }


def _told(each: object) -> object:
    return msgspec.structs.replace(each, reason=None)  # type: ignore[type-var]


def test_another_card_at_the_address_is_named_and_left_alone() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))]))
    made = plan(before, cluster([card(ONE, uuid="GPU-other")]), overwrite=True)
    assert written(made) == []
    assert made.cards.refusals[0].sentence == (
        f"another card is there: GPU-other, and not {uuid_of(ONE)}; it was not touched"
    )


def test_a_card_that_is_in_another_node_is_not_given_out_twice() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))]))
    moved = card(("worker-7", 0), uuid=uuid_of(ONE))
    made = plan(before, cluster([moved]), overwrite=True)
    assert written(made) == []
    assert f"kubectl gpu approve {moved.name} --pool training" in made.cards.refusals[0].sentence


def test_a_card_that_moved_within_its_node_is_recognised() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))]))
    made = plan(before, cluster([card(TWO, uuid=uuid_of(ONE))]))
    assert [edit.name for edit in made.cards.edits] == [card(TWO).name]


def test_a_pool_with_another_spec_is_named_and_its_cards_are_restored() -> None:
    other = msgspec.structs.replace(
        pool("training"), spec=PoolSpec(maintenance=PoolMaintenance(strategy=MaintenanceStrategy.NODE))
    )
    before = saved(cluster([card(ONE, Decided(pool="training"))], [pool("training")]))
    found = cluster([card(ONE)], [other])
    made = plan(before, found)
    assert [each.name for each in made.cards.refusals] == ["GPUPool training"]
    assert "--overwrite" in made.cards.refusals[0].sentence
    assert [edit.annotations[Annotation.ASSIGNMENT] for edit in made.cards.edits] == ["training"]
    (write,) = plan(before, found, overwrite=True).objects
    assert (write.name, write.resource_version) == ("training", "1")
    assert write.before is not None


def test_an_approval_that_is_pending_is_not_written_again() -> None:
    before = saved(cluster(approvals=[examples.approval("worker-9", 1)]))
    found = cluster(approvals=[examples.approval("worker-9", 1)])
    made = plan(before, found)
    assert (written(made), made.cards.unchanged) == ([], (f"GPUApproval {examples.approval('worker-9', 1).name}",))
    other = cluster(approvals=[examples.approval("worker-9", 1, pool="inference")])
    assert [each.name for each in plan(before, other).cards.refusals] == list(made.cards.unchanged)
    assert plan(before, other, overwrite=True).awaited[0].before is not None


def test_a_card_that_somebody_approved_under_another_name_is_not_approved_twice() -> None:
    training, inference = Decided(pool="training"), Decided(pool="inference")
    before = saved(cluster([card(ONE, training)]))
    same = plan(before, cluster(approvals=[approval("my-card", ONE, training)]))
    assert (written(same), same.cards.unchanged) == ([], ("GPUApproval my-card",))
    found = cluster(approvals=[approval("my-card", ONE, inference)])
    assert [each.name for each in plan(before, found).cards.refusals] == ["GPUApproval my-card"]
    (write,) = plan(before, found, overwrite=True).awaited
    assert (write.name, write.spec["pool"], write.resource_version) == ("my-card", "training", "1")
    slot = cluster(approvals=[approval("my-card", ONE, training, "GPU-other")])
    assert plan(before, slot, overwrite=True).awaited[0].name == "my-card"


def test_approvals_that_cannot_be_replaced_are_named_with_the_way_out() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))]))
    elsewhere = approval("my-card", ("worker-7", 0), Decided(pool="training"), uuid_of(ONE))
    two = [approval("a", ONE, Decided(pool="training")), approval("b", ONE, Decided(pool="inference"))]
    for approvals, name in (([elsewhere], "my-card"), (two, "b")):
        made = plan(before, cluster(approvals=approvals), overwrite=True)
        assert written(made) == []
        assert f"`kubectl delete gpuapproval {name}`" in made.cards.refusals[0].sentence


def test_of_two_nodes_with_a_card_the_one_that_answers_counts() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))]))
    for nodes in ([ONE, ("worker-7", 0)], [("worker-7", 0), ONE]):
        both = cluster([card(place, uuid=uuid_of(ONE)) for place in nodes], ready={"worker-1"})
        assert written(plan(before, both)) == [card(ONE).name]


def test_a_dry_run_says_where_cards_end() -> None:
    before = saved(cluster([card(ONE, Decided(pool="training"))], [pool("training")]))
    (change,) = plan(before, cluster([card(ONE, NOTHING)])).cards.cards
    assert (change.card, change.before) == (card(ONE).name, None)
