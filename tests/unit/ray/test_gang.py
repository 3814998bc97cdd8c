"""Which groups of workers may start."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.gang import GangGroup, GangPlan, GatedPod, PoolUnits, plan_releases

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
POOL = "gpu.deckhouse.io/training"
PATIENCE = timedelta(minutes=10)


def waiting(
    name: str = "a",
    pods: int = 4,
    *,
    cluster: str = "rc",
    units: int = 1,
    together: int | None = None,
    hosts: int = 1,
    released: frozenset[str] = frozenset(),
    age: float = 60,
) -> GangGroup:
    """A group of which so many pods wait; the pods of `hosts` after another are one replica."""
    since = NOW - timedelta(seconds=age)
    return GangGroup(
        cluster=Key(cluster, "ns"),
        name=name,
        gated=tuple(
            GatedPod(
                name=f"{name}-{number}",
                created=since + timedelta(seconds=number),
                units={POOL: units},
                replica=f"{name}-r{number // hosts}" if hosts > 1 else "",
            )
            for number in range(pods)
        ),
        together=pods if together is None else together,
        hosts=hosts,
        released=released,
    )


def plan(*groups: GangGroup, free: int, total: int = 100) -> GangPlan:
    return plan_releases(groups, PoolUnits(available={POOL: free}, total={POOL: total}), now=NOW, patience=PATIENCE)


def released(found: GangPlan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in found.releases:
        counts[each.group] = counts.get(each.group, 0) + len(each.pods)
    return counts


@pytest.mark.parametrize(("free", "expected"), [(4, {"a": 4}), (3, {}), (0, {}), (-2, {})])
def test_a_group_starts_when_there_is_room_for_all_of_it(free: int, expected: dict[str, int]) -> None:
    assert released(plan(waiting(), free=free)) == expected


def test_units_count_and_not_pods() -> None:
    assert not plan(waiting(pods=2, units=4), free=7).releases
    assert plan(waiting(pods=2, units=4), free=8).releases


def test_what_is_beyond_the_fewest_does_not_hold_up_the_group() -> None:
    assert released(plan(waiting(pods=6, together=2), free=3)) == {"a": 2}


def test_it_says_what_it_waits_for() -> None:
    found = plan(waiting(), free=3)
    assert found.waits[Key("rc", "ns"), "a"].sentence == f"it starts when 4 units of {POOL} are free at once"


def test_a_group_that_its_pool_could_never_serve_says_so_and_keeps_nobody_waiting() -> None:
    found = plan(waiting("large", 200, age=9999), waiting("small", 2), free=4)
    assert released(found) == {"small": 2}
    assert found.waits[Key("rc", "ns"), "large"].impossible


def test_a_group_of_which_a_part_may_be_scheduled_is_released_as_a_whole() -> None:
    """The operator ended while it took gates away, a person took one away, or a worker is made anew after a loss."""
    assert released(plan(waiting(pods=3, together=4, released=frozenset({"a-9"})), free=0)) == {"a": 3}


def test_a_group_waits_until_all_its_pods_could_be_made() -> None:
    found = plan(waiting(pods=3, together=4), free=10)
    assert not found.releases
    assert found.waits[Key("rc", "ns"), "a"].sentence == "it starts when 1 more pod of it could be created"


@pytest.mark.parametrize("together", [0, 1])
def test_pods_that_are_not_to_wait_for_each_other_any_more_are_released(together: int) -> None:
    assert released(plan(waiting(together=together), free=0)) == {"a": 4}


def test_the_oldest_group_goes_first() -> None:
    assert released(plan(waiting("young", age=10), waiting("old", age=20), free=4)) == {"old": 4}


def test_the_groups_of_a_cluster_go_one_after_another() -> None:
    """Two clusters that got one of two groups each would both wait for good."""
    first = [waiting("a", cluster=name, age=60) for name in ("c1", "c2")]
    second = [waiting("b", cluster=name, age=59) for name in ("c1", "c2")]
    found = plan(*first, *second, free=8)
    assert [(each.cluster.name, each.group) for each in found.releases] == [("c1", "a"), ("c1", "b")]


def test_a_younger_group_that_fits_may_pass_for_a_while() -> None:
    old = waiting("old", 8, age=PATIENCE.total_seconds() - 1)
    found = plan(old, waiting("young", 4, age=10), free=6)
    assert released(found) == {"young": 4}
    assert found.again_at == NOW + timedelta(seconds=1)


def test_after_that_what_is_free_is_kept_for_the_older_one() -> None:
    old = waiting("old", 8, age=PATIENCE.total_seconds())
    assert not plan(old, waiting("young", 4, age=10), free=6).releases
    assert released(plan(old, waiting("young", 4, age=10), free=8)) == {"old": 8}


def test_what_the_older_one_keeps_does_not_hold_up_groups_that_run() -> None:
    old = waiting("old", 8, age=9999)
    running = waiting("running", 1, together=4, released=frozenset({"x"}), age=1)
    assert released(plan(old, running, free=2)) == {"running": 1}


def test_replicas_of_several_hosts_start_one_by_one_once_the_group_runs() -> None:
    group = waiting(pods=6, hosts=2, together=2, released=frozenset({"r-old"}))
    assert released(plan(group, free=5)) == {"a": 4}


def test_a_replica_of_which_a_host_may_be_scheduled_is_carried_to_its_end() -> None:
    group = waiting(pods=3, hosts=2, together=2, released=frozenset({"a-r1"}))
    assert [each.pods for each in plan(group, free=0).releases] == [("a-2",)]


def test_the_first_of_a_group_of_replicas_are_whole_replicas() -> None:
    assert released(plan(waiting(pods=6, hosts=3, together=4), free=6)) == {"a": 6}


def test_a_replica_that_misses_a_host_is_not_among_the_first() -> None:
    group = waiting(pods=5, together=2, hosts=2)
    (lone, *others) = group.gated
    broken = msgspec.structs.replace(group, gated=(lone, *others[1:]))  # r0 has one host, r1 both, r2 one
    (release,) = plan(broken, free=100).releases
    assert release.pods == ("a-2", "a-3")
    none = msgspec.structs.replace(group, gated=(lone, group.gated[4]))
    assert not plan(none, free=100).releases
    assert plan(none, free=100).waits[Key("rc", "ns"), "a"].pods == 2


def test_pods_that_ask_for_no_pool_any_more_are_released() -> None:
    assert released(plan(waiting(units=0), free=0)) == {"a": 4}


@given(
    sizes=st.lists(st.tuples(st.integers(2, 6), st.integers(1, 3), st.integers(0, 1200)), max_size=6),
    free=st.integers(0, 20),
)
def test_never_more_is_released_than_is_free(sizes: list[tuple[int, int, int]], free: int) -> None:
    groups = [waiting(f"g{n}", pods, units=units, age=age) for n, (pods, units, age) in enumerate(sizes)]
    found = plan(*groups, free=free)
    assert sum(each.units[POOL] for each in found.releases) <= free
    # A group starts as a whole or not at all.
    whole = {each.name: len(each.gated) for each in groups}
    assert all(len(each.pods) == whole[each.group] for each in found.releases)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 1200)), min_size=1, max_size=6),
)
def test_no_group_waits_for_another_when_everything_is_free(sizes: list[tuple[int, int, int]]) -> None:
    """There is no deadlock: with all units free at least one group starts, and those that start end some day."""
    groups = [waiting(f"g{n}", pods, units=units, age=age) for n, (pods, units, age) in enumerate(sizes)]
    assert plan(*groups, free=18, total=18).releases
