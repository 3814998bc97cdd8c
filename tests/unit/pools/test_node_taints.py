"""Taints of pools come and go, and those of people stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api import node as nodes
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.scheduling import Scheduling, Taint, TaintEffect
from gpu_control_plane.pools.node_taints import plan_taints, wanted_taints
from unit.pools.test_decide import pool


def ours(key: str, value: str | None = None) -> Taint:
    return Taint(key=key, value=value, effect=TaintEffect.NO_SCHEDULE)


def on_node(key: str, value: str = "", effect: str = "NoSchedule") -> nodes.Taint:
    return nodes.Taint(key=key, value=value, effect=effect)


CORDON = nodes.Taint(key="node.kubernetes.io/unschedulable", effect="NoExecute", time_added="2026-03-02T12:00:00Z")


@pytest.mark.parametrize(
    ("before", "recorded", "wanted", "record", "after"),
    [
        pytest.param((), (), (ours("gpu"),), (ours("gpu"),), (on_node("gpu"),), id="set"),
        pytest.param(
            (CORDON,), (), (ours("gpu"),), (ours("gpu"),), (CORDON, on_node("gpu")), id="set beside what others set"
        ),
        pytest.param((on_node("gpu"),), (ours("gpu"),), (), (ours("gpu"),), (), id="taken off, and still recorded"),
        pytest.param((), (ours("gpu"),), (), (), (), id="forgotten once it is gone"),
        pytest.param((on_node("gpu"),), (), (ours("gpu"),), (), (on_node("gpu"),), id="a person set the same before"),
        pytest.param((on_node("gpu"),), (), (), (), (on_node("gpu"),), id="a person's stays"),
        pytest.param(
            (on_node("gpu", "mine"),),
            (ours("gpu"),),
            (),
            (),
            (on_node("gpu", "mine"),),
            id="a person changed its value",
        ),
        pytest.param(
            (on_node("gpu", "a"),),
            (ours("gpu", "a"),),
            (ours("gpu", "b"),),
            (ours("gpu", "a"), ours("gpu", "b")),
            (on_node("gpu", "b"),),
            id="another value in the spec",
        ),
    ],
)
def test_taints_of_a_node(
    before: tuple[nodes.Taint, ...],
    recorded: tuple[Taint, ...],
    wanted: tuple[Taint, ...],
    record: tuple[Taint, ...],
    after: tuple[nodes.Taint, ...],
) -> None:
    plan = plan_taints(before, recorded, wanted)
    assert (plan.recorded, plan.on_node) == (record, after)


def test_of_two_pools_the_older_ones_taint_is_set() -> None:
    def tainted(name: str, age: int, value: str) -> GPUPool:
        return pool(name, age, scheduling=Scheduling(taints=(ours("gpu", value),)))

    assert wanted_taints([tainted("young", 1, "y"), tainted("old", 9, "o")]) == (ours("gpu", "o"),)


_taints = st.lists(
    st.builds(ours, st.sampled_from("abc"), st.sampled_from(("", "x"))), max_size=3, unique_by=lambda taint: taint.key
)
_node_taints = st.lists(
    st.builds(on_node, st.sampled_from("abc"), st.sampled_from(("", "x"))),
    max_size=3,
    unique_by=lambda taint: (taint.key, taint.effect),
).map(tuple)


@given(_node_taints, st.lists(_taints.map(tuple), max_size=6), st.lists(st.booleans(), min_size=40, max_size=40))
def test_whatever_pools_want_and_wherever_the_controller_dies_others_taints_stay(
    people: tuple[nodes.Taint, ...], wishes: list[tuple[Taint, ...]], dies: list[bool]
) -> None:
    node, recorded, deaths = people, tuple[Taint, ...](), iter(dies)
    for wanted in (*wishes, ()):
        for attempt in range(4):
            plan = plan_taints(node, recorded, wanted)
            recorded = plan.recorded
            if next(deaths) and attempt < 2:
                continue  # The record was written, the Node was not.
            node = plan.on_node
        assert set(people) <= set(node)
        assert len({(taint.key, taint.effect) for taint in node}) == len(node)
    assert (node, recorded) == (people, ()), "nothing of ours is left"
