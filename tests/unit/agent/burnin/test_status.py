"""What is said of a card's burn-in, question by question, and what follows from it whatever the card's past."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.agent.burnin.status import (
    BurnInFacts,
    BurnInStatus,
    burn_in_status,
    in_pool,
    reported_status,
    status_running,
    status_waiting,
)
from gpu_control_plane.agent.views import DeviceStatus, DeviceView, KnownHardware
from gpu_control_plane.api.gpudevice import BurnIn, DeviceSpec
from gpu_control_plane.api.names import Annotation, Reason
from gpu_control_plane.kube.objects import ObjectMeta

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
UUID = "GPU-1"
PASSED = BurnInStatus(status=True, reason=Reason.BURN_IN_PASSED, message="", record=BurnIn(uuid=UUID, ended_at=NOW))
FAILED = replace(PASSED, status=False, reason=Reason.MEMORY_ERRORS)
BEGUN = status_running(UUID, "since noon")
WAITING = status_waiting(UUID, "a pod has it")


@pytest.mark.parametrize(
    ("facts", "enabled", "reason"),
    [
        (BurnInFacts(uuid=UUID), False, None),
        (BurnInFacts(uuid=UUID), True, "due"),
        (BurnInFacts(uuid=UUID, obstacle="busy"), True, Reason.BURN_IN_WAITING),
        (BurnInFacts(uuid=UUID, running="since noon"), True, Reason.BURNING_IN),
        (BurnInFacts(uuid=UUID, running="since noon", obstacle="busy"), True, Reason.BURNING_IN),
        (BurnInFacts(uuid=UUID, in_pool=True), True, Reason.IN_SERVICE),
        (BurnInFacts(uuid=UUID, in_pool=True), False, None),
        (BurnInFacts(uuid=UUID, in_pool=True, known=WAITING, obstacle="in a pool"), True, Reason.BURN_IN_WAITING),
        (BurnInFacts(uuid=UUID, known=PASSED), True, Reason.BURN_IN_PASSED),
        (BurnInFacts(uuid=UUID, known=PASSED), False, Reason.BURN_IN_PASSED),
        (BurnInFacts(uuid=UUID, known=FAILED), True, Reason.MEMORY_ERRORS),
        (BurnInFacts(uuid=UUID, known=FAILED), False, None),
        (BurnInFacts(uuid=UUID, known=BEGUN), True, "due"),
        (BurnInFacts(uuid=UUID, known=BEGUN), False, None),
        (BurnInFacts(uuid=UUID, known=WAITING), True, "due"),
        (BurnInFacts(uuid=None), True, None),
        (BurnInFacts(uuid=None, known=PASSED), True, Reason.BURN_IN_PASSED),
    ],
    ids=[
        "off",
        "new",
        "new and in use",
        "under test",
        "under test and ordered meanwhile",
        "in a pool already",
        "in a pool, off",
        "pooled although it was not tested",
        "passed",
        "passed, then switched off",
        "failed",
        "failed, then switched off",
        "broken off: begins anew",
        "broken off, then switched off",
        "waited before",
        "no driver",
        "no driver, passed before",
    ],
)
def test_each_question_has_one_answer(facts: BurnInFacts, enabled: bool, reason: str | None) -> None:
    standing = burn_in_status(facts, enabled=enabled)
    assert ((standing.due and "due") or standing.reason if standing else None) == reason


facts = st.builds(
    BurnInFacts,
    uuid=st.sampled_from([None, UUID]),
    known=st.sampled_from([None, PASSED, FAILED, BEGUN, WAITING]),
    in_pool=st.booleans(),
    running=st.sampled_from([None, "since noon"]),
    obstacle=st.sampled_from([None, "busy"]),
)


@given(facts, st.booleans())
def test_no_card_is_trusted_or_tested_without_reason(facts: BurnInFacts, enabled: bool) -> None:
    standing = burn_in_status(facts, enabled=enabled)
    if standing is None:
        return
    if standing.trusted:
        assert facts.known is PASSED or facts.in_pool
    if standing.due:
        assert enabled
        assert (facts.running, facts.obstacle) == (None, None)
    assert burn_in_status(replace(facts, known=standing), enabled=enabled) == standing, "said once is said for good"


def card(*, approved: str | None = None, uuid: str | None = UUID, said_of: str | None = None) -> DeviceView:
    return DeviceView(
        metadata=ObjectMeta(name="a", annotations={Annotation.ASSIGNMENT: approved} if approved else {}),
        spec=DeviceSpec(node_name="n", pci_address="0000:18:00.0"),
        status=DeviceStatus(
            hardware=KnownHardware(uuid=uuid),
            burn_in=BurnIn(uuid=said_of) if said_of else None,
        ),
    )


@pytest.mark.parametrize(
    ("known", "ordered", "pooled"),
    [
        (card(approved="a"), "a", True),
        (card(), None, False),
        (card(approved="a"), None, False),
        (card(), "a", False),
        (card(approved="b"), "a", False),
        (card(approved="a", uuid="GPU-2"), "a", False),
        (card(approved="a", uuid=None), "a", False),
        (card(approved="a", said_of="GPU-2"), "a", False),
    ],
    ids=["in it", "in none", "on its way in", "on its way out", "moving", "another card", "not described", "exchanged"],
)
def test_in_a_pool_is_who_is_meant_to_stay(known: DeviceView, ordered: str | None, pooled: bool) -> None:
    assert in_pool(known, UUID, ordered) is pooled


@pytest.mark.parametrize("standing", [PASSED, FAILED, BEGUN, WAITING])
def test_what_was_written_is_read_back(standing: BurnInStatus) -> None:
    empty = card()
    condition = standing.as_condition((), NOW)
    written = replace(empty, status=replace(empty.status, conditions=(condition,), burn_in=standing.record))
    assert reported_status(written) == standing
    assert reported_status(empty) is None
