"""The three broken nodes on the page for people say exactly what the code says."""

from pathlib import Path

import pytest

from gpu_control_plane.api.examples import NOON, pci_address
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.inventory.completeness import MissingCard, cards_missing
from gpu_control_plane.kube import Condition
from unit.bootstrap.builders import AGENT, NODE, condition, node, observed, pod, state, without

PAGE = " ".join((Path(__file__).parents[3] / "docs/inventory.md").read_text().split())
MISSING = cards_missing(NODE, 2, 1, [MissingCard(pci_address(1), "NVIDIA H200", f"{NODE}-0000-2a-00-0")]).message


def no_driver() -> Snapshot:
    return observed(
        state=state(driver=None, toolkit=None, monitoring=None), pods=(AGENT,), node=node(without("gpu.product"))
    )


def lost_card() -> Snapshot:
    held = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING, MISSING)
    return observed(state=state(conditions=(held,)))


def lost_agent() -> Snapshot:
    return observed(pods=(pod(Operand.AGENT, ready=False, crashed=NOON),))


def shown(snapshot: Snapshot) -> tuple[Condition, ...]:
    """What the page shows of a node: inventory's condition, and those that are not good."""
    inventory = tuple(held for held in snapshot.conditions if held.reason == Reason.CARDS_MISSING)
    bad = {"DriverMissing": "True", "ToolkitMissing": "True", "MonitoringMissing": "True", "Degraded": "True"}
    bad |= {"ReadyForPooling": "False"}
    return *inventory, *(held for held in decide(snapshot).conditions if bad.get(held.type) == held.status)


@pytest.mark.parametrize("snapshot", [no_driver(), lost_card(), lost_agent()], ids=["driver", "card", "agent"])
def test_the_page_shows_what_a_broken_node_says(snapshot: Snapshot) -> None:
    for held in shown(snapshot):
        line = f"{held.type} {held.status} {held.reason} {held.message}"
        assert line in PAGE, line
