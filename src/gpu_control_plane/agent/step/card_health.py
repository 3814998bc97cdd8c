"""How healthy each card is after a probe. A probe is judged once: recovery counts good probes."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.health import WORKS, Verdict, unseen
from gpu_control_plane.agent.step.card_notices import Notice, NoticeMemory, card_notices, recalled_notices
from gpu_control_plane.agent.step.recovery import CardHealth, RecoveryPolicy, judge, recalled
from gpu_control_plane.agent.step.snapshot import NodeMemory
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.conditions import find


class HealthUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe means for the cards of the node."""

    health: dict[CardID, CardHealth]
    verdicts: dict[CardID, Verdict]
    notice_memory: dict[CardID, NoticeMemory]
    notices: tuple[tuple[DeviceView, Notice], ...]
    clear_errors: tuple[str, ...]
    next_probe: float | None


def judge_cards(
    hardware: HardwareSnapshot, devices: Iterable[DeviceView], memory: NodeMemory, *, now: float, policy: RecoveryPolicy
) -> HealthUpdate:
    """Judge every card by a probe that has not been judged yet. Of a card that this agent has not judged before, its
    Healthy condition tells what an earlier agent knew."""
    objects = {device.name: device for device in devices}
    conditions = {name: find(device.status.conditions, DeviceCondition.HEALTHY) for name, device in objects.items()}
    health: dict[CardID, CardHealth] = {}
    verdicts: dict[CardID, Verdict] = {}
    remembered: dict[CardID, NoticeMemory] = {}
    notices: list[tuple[DeviceView, Notice]] = []
    clear: list[str] = []
    due: list[float] = []
    for card in hardware.observed.values():
        rules = support_of(card.hardware.vendor).health
        before = memory.health.get(card.id) or recalled(conditions.get(card.id))
        judged = judge(
            before,
            card.signals,
            now,
            rules=rules,
            cleared=card.id in hardware.cleared,
            temperature=card.readings.temperature,
            policy=policy,
        )
        device = objects.get(card.id)
        told = card_notices(
            memory.notices.get(card.id) or _recalled_notices(device, now),
            card.signals,
            card.readings.temperature,
            unseen(before.known, card.signals.xids),
            now,
            rules=rules,
        )
        health[card.id] = judged.memory
        verdicts[card.id] = told.advice[0] if told.advice and judged.verdict == WORKS else judged.verdict
        if device is not None:  # A card without its object is told of later, by the next probe.
            remembered[card.id] = told.memory
            notices += ((device, notice) for notice in told.new)
        if judged.forget:
            clear.append(card.address)
        if judged.next_probe is not None:
            due.append(judged.next_probe)
    return HealthUpdate(
        health=health,
        verdicts=verdicts,
        notice_memory=remembered,
        notices=tuple(notices),
        clear_errors=tuple(clear),
        next_probe=min(due, default=None),
    )


def _recalled_notices(device: DeviceView | None, now: float) -> NoticeMemory:
    if device is None:
        return NoticeMemory()
    telemetry = device.status.telemetry
    healthy = find(device.status.conditions, DeviceCondition.HEALTHY)
    return recalled_notices(healthy, telemetry.last_xid if telemetry is not None else None, now)
