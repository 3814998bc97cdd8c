"""Which nodes have to be looked at when policies, or the nodes they govern, change."""

import pytest
from msgspec.structs import replace

from gpu_control_plane.operator.upgrade.groups import Campaign, governed_otherwise
from unit.operator.upgrade.nodes import POLICY

A = Campaign("a", POLICY, frozenset({"one", "two"}))
B = Campaign("b", POLICY, frozenset({"three"}))


def governing(*campaigns: Campaign) -> dict[str, Campaign]:
    return {node: campaign for campaign in campaigns for node in campaign.nodes}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((A, B), set()),
        ((replace(A, nodes=frozenset({"one", "two", "new"})), B), {"new"}),
        ((replace(A, nodes=frozenset({"one"})), B), {"two"}),
        ((replace(A, nodes=frozenset({"one"})), replace(B, nodes=frozenset({"two", "three"}))), {"two"}),
        ((replace(A, policy=replace(POLICY, paused=True)), B), {"one", "two"}),
        ((replace(A, policy=None), B), {"one", "two"}),
        ((replace(A, unreadable=True), B), {"one", "two"}),
        ((), {"one", "two", "three"}),
    ],
    ids=["the same", "a new node", "a node less", "changed hands", "paused", "off", "unreadable", "nobody"],
)
def test_nodes_are_looked_at_when_they_are_governed_otherwise(after: tuple[Campaign, ...], expected: set[str]) -> None:
    assert governed_otherwise(governing(A, B), governing(*after)) == expected
