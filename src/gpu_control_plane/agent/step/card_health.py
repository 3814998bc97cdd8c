"""How healthy each card is after a probe. A probe is judged once: recovery counts good probes."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.health import Verdict
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
    clear_errors: tuple[str, ...]
    next_probe: float | None


def judge_cards(
    hardware: HardwareSnapshot, devices: Iterable[DeviceView], memory: NodeMemory, *, now: float, policy: RecoveryPolicy
) -> HealthUpdate:
    """Judge every card by a probe that has not been judged yet. Of a card that this agent has not judged before, its
    Healthy condition tells what an earlier agent knew."""
    conditions = {device.name: find(device.status.conditions, DeviceCondition.HEALTHY) for device in devices}
    health: dict[CardID, CardHealth] = {}
    verdicts: dict[CardID, Verdict] = {}
    clear: list[str] = []
    due: list[float] = []
    for card in hardware.observed.values():
        judged = judge(
            memory.health.get(card.id) or recalled(conditions.get(card.id)),
            card.signals,
            now,
            rules=support_of(card.hardware.vendor).health,
            cleared=card.id in hardware.cleared,
            temperature=card.readings.temperature,
            policy=policy,
        )
        health[card.id], verdicts[card.id] = judged.memory, judged.verdict
        if judged.forget:
            clear.append(card.address)
        if judged.next_probe is not None:
            due.append(judged.next_probe)
    return HealthUpdate(health=health, verdicts=verdicts, clear_errors=tuple(clear), next_probe=min(due, default=None))
