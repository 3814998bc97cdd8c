"""Nothing is concluded from a status that is older than what the node reports, and nobody waits for ever."""

from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import NOON, h200, pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import Driver
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts, NodeFeature, feature_name, node_feature
from gpu_control_plane.bootstrap.decide import BEHIND, decide
from gpu_control_plane.bootstrap.snapshot import Remembered, Settings
from gpu_control_plane.kube import Condition, ObjectMeta
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.rules.node_readiness import is_taken_in
from unit.bootstrap.scene import AGENT, CARDS, COMPLETE, LONG_AGO, NODE, condition, seen, state

STATUS = state().status
FIRST, SECOND = (h200(NODE, index, CARDS) for index in range(CARDS))
BUS = (FIRST.pci, SECOND.pci)
FACTS = NodeFacts(bus_cards=CARDS, bus=BUS, driver=STATUS.driver, toolkit=STATUS.toolkit, monitoring=STATUS.monitoring)
NOT_READY = (COMPLETE, condition(NodeCondition.READY_FOR_POOLING, False, Reason.AGENT_NOT_READY))
PATIENCE = Settings()


def report(*cards: Hardware, **facts: object) -> NodeFeature:
    said = msgspec.structs.replace(FACTS, **facts)
    return NodeFeature(metadata=ObjectMeta(name=feature_name(NODE)), spec=node_feature(NODE, said, cards))


@pytest.mark.parametrize(
    ("feature", "ignored", "taken_in"),
    [
        (None, set(), True),
        (report(FIRST, SECOND), set(), True),
        (report(FIRST, SECOND, boot_id="another"), set(), True),
        (report(FIRST, SECOND, driver=None), set(), False),
        (report(FIRST, SECOND, driver=Driver(version="1.2")), set(), False),
        (report(FIRST, SECOND, toolkit=None), set(), False),
        (report(FIRST, SECOND, monitoring=None), set(), False),
        (report(FIRST), set(), False),
        (report(FIRST), {pci_address(1)}, True),
        (report(FIRST), {pci_address(0)}, False),
        (report(FIRST, bus=None), set(), False),
        (report(FIRST, bus=None), {pci_address(1)}, True),
        (report(FIRST, bus=None), {pci_address(0)}, False),
        (report(FIRST, bus=BUS[:1], bus_cards=1), set(), True),
        (report(FIRST, msgspec.structs.replace(SECOND, uuid="GPU-other")), set(), False),
        (report(FIRST, msgspec.structs.replace(SECOND, uuid=None)), set(), True),
        (report(FIRST, msgspec.structs.replace(SECOND, pci=msgspec.structs.replace(BUS[1], address="?"))), set(), True),
    ],
    ids=[
        "no report",
        "as written",
        "booted again",
        "the driver has gone",
        "another driver",
        "the toolkit has gone",
        "no metrics any more",
        "a card is lost",
        "lost, and out of service",
        "lost, and another out of service",
        "lost, nobody says where",
        "lost, nobody says where, and one out of service",
        "lost, nobody says where, and a reported one out of service",
        "pulled: nothing to be afraid of",
        "exchanged",
        "seen without driver",
        "nonsense: inventory tells that",
    ],
)
def test_a_status_is_behind_when_it_promises_more_than_the_report(
    feature: NodeFeature | None, ignored: set[str], taken_in: bool
) -> None:
    assert is_taken_in(feature, STATUS, ignored) is taken_in


def test_nothing_is_said_while_the_status_is_behind_the_report() -> None:
    """Its agent is back: by the status alone the node would be ready."""
    behind = seen(state=state(conditions=NOT_READY), pods=(AGENT,), taken_in=False)
    decision = decide(behind, PATIENCE)
    assert (decision.conditions, decision.again_in) == ((), PATIENCE.loss_after)
    later = msgspec.structs.replace(behind, remembered=decision.remember, now=NOON + timedelta(seconds=20))
    assert decide(later, PATIENCE).again_in == PATIENCE.loss_after - timedelta(seconds=20)
    taken_in = msgspec.structs.replace(later, taken_in=True)
    assert _readiness(decide(taken_in, PATIENCE).conditions) == Reason.READY


def test_a_status_that_stays_behind_holds_nothing_up_for_ever() -> None:
    """Inventory may be switched off. What was noticed is remembered, so that the wait does not begin anew."""
    had = Remembered(noticed={BEHIND: LONG_AGO})
    decision = decide(seen(pods=(AGENT,), taken_in=False, remembered=had), PATIENCE)
    assert _readiness(decision.conditions) == Reason.READY
    assert decision.remember.noticed[BEHIND] == LONG_AGO


def test_an_incomplete_inventory_is_told_at_once() -> None:
    """What it is about to say cannot make it worse."""
    incomplete = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING)
    decision = decide(seen(state=state(conditions=(incomplete,)), taken_in=False), PATIENCE)
    assert _readiness(decision.conditions) == Reason.INVENTORY_INCOMPLETE


def _readiness(conditions: tuple[Condition, ...]) -> str | None:
    held = find(conditions, NodeCondition.READY_FOR_POOLING)
    return held.reason if held is not None else None
