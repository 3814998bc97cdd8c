"""What a preview tells besides cards and units, what maintenance can be told to do, and what files hold."""

from datetime import timedelta

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.actions.pool_files import NotAPool, read_pools
from gpu_control_plane.actions.pool_maintenance import plan_confirm_layout, plan_maintenance, view_maintenance
from gpu_control_plane.actions.preview import AccessChange, preview_pool
from gpu_control_plane.api.access import Access, Quota
from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, ProfileCount, TimeSlice
from gpu_control_plane.api.gpupool import GPUPool, MaintenanceStrategy, PoolMaintenance, PoolResource
from gpu_control_plane.api.names import Annotation, PoolCondition, Reason
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.views.fleet import Fleet
from unit.actions.fleets import fleet_of
from unit.actions.test_plans import settled
from unit.pools.model import NOW, NodeModel
from unit.pools.test_decide import pool

SLICED = PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4))
MIXED = PoolAllocation(
    mode=Mode.MIG, mig=MIG(layout=(ProfileCount(profile="3g.71gb", count=1), ProfileCount(profile="1g.18gb", count=2)))
)


def in_use() -> NodeModel:
    made = settled(pool("a"), cards=2, approved="a")
    made.start_pod(min(made.devices))
    return made


def test_a_new_pool_says_how_many_cards_wait_for_an_approval() -> None:
    found = preview_pool(fleet_of(settled(cards=2)), pool("a"))
    assert (found.new, found.cards, found.waiting) == (True, (), {"AwaitingApproval": 2})


def test_a_pool_with_the_resource_of_another_is_refused_whatever_its_timestamp() -> None:
    older = pool("z", resource=PoolResource(name="gpu.deckhouse.io/a"), age=1000)
    found = preview_pool(fleet_of(settled(pool("a"))), older)
    assert "the older pool a has the same resource" in found.refusals[0].sentence


def test_quotas_say_what_is_held_and_only_what_changes() -> None:
    quotas = (Quota(namespace="default", units=0), Quota(namespace="team-b", units=3))
    found = preview_pool(fleet_of(in_use()), pool("a", quotas=quotas))
    shown = [(each.namespace, each.before, each.after, each.held) for each in found.quotas]
    assert shown == [("default", None, 0, 1), ("team-b", None, 3, 0)]
    made = in_use()
    made.pools["a"] = replace(made.pools["a"], spec=pool("a", quotas=quotas).spec)
    unchanged = preview_pool(fleet_of(made), pool("a", quotas=quotas)).quotas
    assert [each.namespace for each in unchanged] == ["default"], "more is held than the limit allows"


def test_access_says_who_comes_and_who_goes() -> None:
    before = settled(pool("a", access=Access(namespaces=("team-a", "team-b"))))
    access = Access(namespaces=("team-b",), namespace_selector=LabelSelector(), users=("alice",))
    found = preview_pool(fleet_of(before), pool("a", access=access)).access
    assert found == AccessChange(added=("every namespace", "user alice"), removed=("namespace team-a",))
    assert preview_pool(fleet_of(before), pool("a")).access.nobody


def test_a_change_of_the_allocation_names_the_pods_in_its_way() -> None:
    fleet = fleet_of(in_use())
    found = preview_pool(fleet, pool("a", allocation=SLICED)).maintenance
    assert found is not None
    assert (found.before, found.after, found.serves_meanwhile) == ("Exclusive", "TimeSlice 4", False)
    assert [(each.pod, each.units) for each in found.in_the_way] == [("default/pod-0", 1)]
    by_node = PoolMaintenance(strategy=MaintenanceStrategy.NODE)
    meanwhile = preview_pool(fleet, pool("a", allocation=SLICED, maintenance=by_node)).maintenance
    assert meanwhile is not None
    assert meanwhile.serves_meanwhile
    assert preview_pool(fleet, pool("a")).maintenance is None


def changing() -> tuple[Fleet, GPUPool]:
    made = in_use()
    made.pools["a"] = replace(made.pools["a"], spec=pool("a", allocation=MIXED).spec)
    made.settle()
    fleet = fleet_of(made)
    return fleet, fleet.pools["a"]


def test_maintenance_says_how_far_it_is_and_for_whom_it_waits() -> None:
    fleet, changed = changing()
    view = view_maintenance(fleet, changed, NOW)
    assert view.sentence.startswith("Exclusive → MIG 2x1g.18gb 1x3g.71gb: 0 of 1 node done, 1 unit in use")
    assert [each.pod for each in view.in_the_way] == ["default/pod-0"]
    assert not view.overdue
    assert view_maintenance(fleet, changed, NOW + timedelta(days=2)).overdue


def test_reverting_writes_the_allocation_that_nodes_have_and_takes_the_other_off() -> None:
    fleet, _ = changing()
    (edit,) = plan_maintenance(fleet, "a", revert=True, strategy=MaintenanceStrategy.NODE, deadline="1h").edits
    assert edit.body == {
        "spec": {
            "maintenance": {"strategy": "Node", "deadline": "1h"},
            "allocation": {"mode": "Exclusive", "mig": None, "timeSlice": None},
        }
    }
    settled_fleet = fleet_of(in_use())
    assert plan_maintenance(settled_fleet, "a", revert=True).refusals
    assert plan_maintenance(settled_fleet, "a", strategy=MaintenanceStrategy.POOL).unchanged == ("a",)
    assert plan_maintenance(settled_fleet, "b", revert=True).refusals[0].absent


def test_a_layout_is_confirmed_only_where_one_waits_for_it() -> None:
    fleet = fleet_of(in_use())
    assert plan_confirm_layout(fleet, "a").edits == ()
    assert plan_confirm_layout(fleet, "b").refusals[0].absent
    mismatch = Condition(
        type=PoolCondition.CONFIGURED, status="False", reason=Reason.LAYOUT_MISMATCH, last_transition_time=NOW
    )
    waits = replace(fleet.pools["a"], status=replace(fleet.pools["a"].status, conditions=(mismatch,)))
    plan: Plan = plan_confirm_layout(replace(fleet, pools={"a": waits}), "a")
    assert [edit.annotations for edit in plan.edits] == [{Annotation.CONFIRM_LAYOUT: "yes"}]
    assert plan.command == "kubectl gpu maintenance a --confirm-layout"


POOL = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUPool", "metadata": {"name": "a"}, "spec": {}}


def test_a_file_may_hold_several_pools_also_as_a_list() -> None:
    second = {**POOL, "metadata": {"name": "b"}}
    text = yaml.safe_dump_all([POOL, {"apiVersion": "v1", "kind": "List", "items": [second]}])
    assert [each.pool.name for each in read_pools(text, "pools.yaml")] == ["a", "b"]
    assert [each.pool.name for each in read_pools(msgspec.json.encode(POOL).decode(), "pool.json")] == ["a"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "pool.yaml has no GPUPool in it."),
        ("a: [", "pool.yaml: This is no YAML: "),
        (b"\xff\xfea", "pool.yaml: This is no text in UTF-8, line 1"),
        ("[" * 300_000 + "]" * 300_000, "pool.yaml: Line 1: this is nested more than 100 levels deep."),
        ("a: 1", "pool.yaml has something that has no kind in it: only GPUPools of"),
        ("kind: GPUPool", "pool.yaml has a GPUPool of no apiVersion in it: only GPUPools of"),
        ("- 1", "pool.yaml has something in it that is no object."),
        (yaml.safe_dump({"apiVersion": "v1", "kind": "Pod"}), "pool.yaml has a Pod of v1 in it: only GPUPools of"),
        (yaml.safe_dump({**POOL, "metadata": {}}), "pool.yaml: a GPUPool has no metadata.name."),
        (yaml.safe_dump({**POOL, "spec": {"quotas": 3}}), "pool.yaml: the GPUPool does not fit its schema: Expected"),
    ],
)
def test_a_file_that_is_no_pool_is_one_sentence(text: str | bytes, sentence: str) -> None:
    with pytest.raises(NotAPool) as raised:
        read_pools(text, "pool.yaml")
    assert str(raised.value).startswith(sentence)
