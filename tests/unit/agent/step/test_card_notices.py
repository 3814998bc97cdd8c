"""What is worth a look on a card in service is told once, when it begins, and not again by a new agent."""

from collections.abc import Iterable

import pytest

from gpu_control_plane.agent.backends.interface import Signals
from gpu_control_plane.agent.health import REMAP_PENDING, WORKS
from gpu_control_plane.agent.simulated.machine import break_memory, report_xid, wear_out
from gpu_control_plane.agent.step.card_notices import (
    HEATING_UP,
    MEMORY_ERRORS_RISING,
    CardNotices,
    NoticeMemory,
    card_notices,
    recalled_notices,
)
from gpu_control_plane.agent.vendors.nvidia.health import RULES
from gpu_control_plane.api.names import DeviceCondition, EventReason
from gpu_control_plane.kube.conditions import condition
from unit.agent.step.builders import NOW
from unit.agent.step.node_model import NodeModel

MINUTE = 60.0


def look(
    memory: NoticeMemory,
    now: float,
    *,
    temperature: int | None = None,
    corrected: int = 0,
    remap_pending: bool = False,
    reports: Iterable[int] = (),
) -> CardNotices:
    signals = Signals(corrected_ecc=corrected, remap_pending=remap_pending)
    return card_notices(memory, signals, temperature, reports, now, rules=RULES)


def reasons(found: CardNotices) -> list[EventReason]:
    return [notice.reason for notice in found.new]


def test_a_code_of_a_program_is_told_again_only_after_a_quarter_of_an_hour_without_it() -> None:
    memory, told = NoticeMemory(), []
    for minute in (0, 1, 10, 20, 40):
        found = look(memory, minute * MINUTE, reports=(31,))
        memory = found.memory
        told += [minute] * len(found.new)
    assert told == [0, 40]


@pytest.mark.parametrize("code", [79, 43, 999])
def test_what_no_program_caused_is_told_elsewhere(code: int) -> None:
    assert not look(NoticeMemory(), 0.0, reports=(code,)).new


def test_what_ends_and_begins_again_is_told_again() -> None:
    first = look(NoticeMemory(), 0.0, remap_pending=True)
    lasting = look(first.memory, 15.0, remap_pending=True)
    over = look(lasting.memory, 30.0)
    again = look(over.memory, 45.0, remap_pending=True)
    assert [reasons(each) for each in (first, lasting, over, again)] == [
        [EventReason.ROW_REMAPPED],
        [],
        [],
        [EventReason.ROW_REMAPPED],
    ]


@pytest.mark.parametrize("verdict", [REMAP_PENDING, MEMORY_ERRORS_RISING, HEATING_UP], ids=lambda each: each.reason)
def test_a_new_agent_does_not_tell_what_the_old_one_has_told(verdict: object) -> None:
    said = condition((), DeviceCondition.HEALTHY, True, verdict.reason, verdict.message, now=NOW)  # type: ignore[attr-defined]
    memory = recalled_notices(said, None, 0.0)
    for minute in range(5):
        found = look(memory, minute * MINUTE, temperature=90, remap_pending=verdict is REMAP_PENDING)
        memory = found.memory
        assert not found.new
        assert found.advice == (verdict,)


def test_a_new_agent_does_not_tell_of_the_last_code_that_the_old_one_reported() -> None:
    assert not look(recalled_notices(None, 31, 0.0), 1.0, reports=(31,)).new


def test_a_card_that_is_cool_and_corrects_nothing_leaves_nothing_to_remember() -> None:
    memory = NoticeMemory()
    for minute in range(200):
        memory = look(memory, minute * MINUTE, temperature=45).memory
    assert (memory.temperatures, len(memory.corrected)) == ((), 1)


def test_errors_of_before_the_agent_count_for_nothing() -> None:
    first = look(NoticeMemory(), 0.0, corrected=5000)
    assert not first.new
    assert not look(first.memory, MINUTE, corrected=5100).new
    assert reasons(look(first.memory, MINUTE, corrected=5101)) == [EventReason.MEMORY_ERRORS_RISING]


def test_the_trend_is_kept_for_ten_minutes_and_the_count_for_an_hour() -> None:
    memory = NoticeMemory()
    for minute in range(300):
        memory = look(memory, minute * MINUTE, temperature=85, corrected=minute).memory
    assert len(memory.temperatures) <= 10
    assert len(memory.corrected) <= 62


def test_a_step_tells_of_a_card_and_its_condition_says_the_same() -> None:
    node = NodeModel(cards=1)
    node.step()
    (card,), address = node.cards, node.devices[0].spec.pci_address
    assert node.memory.verdicts[card] == WORKS
    node.change(wear_out(node.backend.machine, address, failed=False))
    plan = node.step()
    assert [(device.name, notice.reason) for device, notice in plan.notices] == [(card, EventReason.ROW_REMAPPED)]
    assert node.memory.verdicts[card] == REMAP_PENDING
    node.probe()
    assert not node.step().notices


def test_an_error_that_ended_one_program_is_told_and_the_card_stays() -> None:
    node = NodeModel(cards=1)
    node.step()
    (card,), address = node.cards, node.devices[0].spec.pci_address
    node.change(report_xid(break_memory(node.backend.machine, address), address, 94))
    plan = node.step()
    assert [notice.reason for _, notice in plan.notices] == [EventReason.PROGRAM_FAILED]
    assert node.memory.verdicts[card].healthy


def test_a_card_without_an_object_is_told_of_once_it_has_one() -> None:
    node = NodeModel(cards=1)
    node.step()
    devices, node.devices = node.devices, ()
    node.change(wear_out(node.backend.machine, devices[0].spec.pci_address, failed=False))
    assert not node.step().notices
    node.devices = devices
    node.probe()
    assert [notice.reason for _, notice in node.step().notices] == [EventReason.ROW_REMAPPED]
