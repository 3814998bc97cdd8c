"""Which NVIDIADriver a node belongs to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason
from gpu_control_plane.operator.drivers.owner import ParsedDriver, ownership_of, selector_claims
from unit.operator.drivers.builders import driver, node

A = driver("a", nodeSelector={"pool": "a"})
B = driver("b", nodeSelector={"zone": "z"})
X = driver("x", default=True)
Y = driver("y", default=True)


@pytest.mark.parametrize(
    ("drivers", "labels", "owner"),
    [
        ((A, X), {"pool": "a"}, "a"),
        ((A, X), {}, "x"),
        ((A,), {}, None),
        ((driver("a", nodeSelector={"pool": "a"}, deleting=True), X), {"pool": "a"}, "x"),
        ((driver("all"),), {}, "all"),
        ((driver("all", nodeSelector={}),), {"pool": "a"}, "all"),
        ((A, B, X), {"zone": "z"}, "b"),
        ((), {}, None),
    ],
)
def test_a_node_has_the_owner_that_the_selectors_name(
    drivers: tuple[ParsedDriver, ...], labels: dict[str, str], owner: str | None
) -> None:
    assert ownership_of(drivers, [node("n", labels=labels)]).owners == {"n": owner}


@pytest.mark.parametrize(
    ("drivers", "reason", "says"),
    [
        ((A, B, X), StackReason.CONFLICTING_NODE_SELECTOR, "n: a, b"),
        ((X, Y), StackReason.RECONCILE_FAILED, "x and y"),
        ((X, driver("c", nodeSelector={NodeLabel.DRIVER_OWNER.value: "x"})), StackReason.RECONCILE_FAILED, "c"),
        (
            (X, ParsedDriver(name="torn", uid="u", problem="spec.rdma: no")),
            StackReason.RECONCILE_FAILED,
            "torn: spec.rdma",
        ),
    ],
)
def test_a_contradiction_leaves_every_node_as_it_is(
    drivers: tuple[ParsedDriver, ...], reason: StackReason, says: str
) -> None:
    found = ownership_of(drivers, [node("n", labels={"pool": "a", "zone": "z"}), node("other")])
    assert found.owners == {}
    assert found.problem is not None
    assert found.problem.reason is reason
    assert says in found.problem.message


def test_nodes_without_a_card_have_no_owner() -> None:
    plain = node("plain", labels={NodeLabel.PRESENT: "false"})
    assert ownership_of([X], [plain]).owners == {}
    assert selector_claims([X]).claimants(plain.metadata.labels) == ()


def test_a_long_list_of_contested_nodes_is_cut() -> None:
    found = ownership_of(
        [A, driver("c", nodeSelector={"pool": "a"})], [node(f"n{i}", labels={"pool": "a"}) for i in range(9)]
    )
    assert found.problem is not None
    assert "and 6 more" in found.problem.message


def test_the_nodes_of_one_are_known() -> None:
    found = ownership_of([A, X], [node("one", labels={"pool": "a"}), node("two")])
    assert found.nodes_of("a") == {"one"}


LABELS = st.dictionaries(st.sampled_from("pqr"), st.sampled_from("01"), max_size=3)
FLEET = st.lists(LABELS, min_size=1, max_size=6)
WANTED = st.lists(st.tuples(LABELS, st.booleans(), st.booleans()), max_size=4)


@given(fleet=FLEET, wanted=WANTED, data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_answer_depends_on_nothing_but_selectors(
    fleet: list[dict[str, str]], wanted: list[tuple[dict[str, str], bool, bool]], data: st.DataObject
) -> None:
    drivers = [
        driver(f"d{i}", nodeSelector={} if default else selector, default=default, deleting=deleting)
        for i, (selector, default, deleting) in enumerate(wanted)
    ]
    nodes = [node(f"n{i}", labels=labels) for i, labels in enumerate(fleet)]
    found = ownership_of(drivers, nodes)
    again = ownership_of(data.draw(st.permutations(drivers)), data.draw(st.permutations(nodes)))
    assert found.problem == again.problem
    assert dict(found.owners) == dict(again.owners)
    alive = {held.name: held for held in drivers if not held.deleting}
    for name, owner in found.owners.items():
        labels = next(held.metadata.labels for held in nodes if held.name == name)
        selecting = {
            held.name
            for held in alive.values()
            if held.spec and not held.spec.default and (held.spec.node_selector or {}).items() <= labels.items()
        }
        if owner is None:
            assert not selecting
            assert not any(held.spec and held.spec.default for held in alive.values())
        else:
            assert owner in alive
            assert selecting in ({owner}, set())
