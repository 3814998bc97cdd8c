"""What the agent writes into the status of a card: its users, its health, its burn-in, and readings whose class has
changed. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from gpu_control_plane.agent.burnin.status import BurnInStatus
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, ObservedCard
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.step.plan import DeviceReport
from gpu_control_plane.agent.step.snapshot import NodeMemory, NodeSnapshot
from gpu_control_plane.agent.telemetry import telemetry_to_write
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.agent.views import DeviceView, device_apply_configuration
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.apply import differs
from gpu_control_plane.kube.conditions import FALSE, condition, find


def device_reports(
    snapshot: NodeSnapshot, hardware: HardwareSnapshot, memory: NodeMemory, users: Mapping[CardID, tuple[User, ...]]
) -> Iterator[DeviceReport]:
    """The cards whose status has to be written."""
    for device in snapshot.devices:
        card, verdict = hardware.observed.get(device.name), memory.verdicts.get(device.name)
        # Whether a card has to be tested is written together with its health, or pools would take it before.
        if card is None or verdict is None or device.deleting or device.name not in memory.burn_ins:
            continue
        burn_in = memory.burn_ins[device.name]
        report = _report(device, card, verdict, burn_in, users=users.get(device.name, ()), now=snapshot.now)
        if differs(report.desired, device):
            yield report


def _report(
    device: DeviceView,
    card: ObservedCard,
    verdict: Verdict,
    burn_in: BurnInStatus | None,
    *,
    users: tuple[User, ...],
    now: datetime,
) -> DeviceReport:
    conditions = device.status.conditions
    before = find(conditions, DeviceCondition.HEALTHY)
    health = condition(conditions, DeviceCondition.HEALTHY, verdict.healthy, verdict.reason, verdict.message, now=now)
    telemetry = telemetry_to_write(device.status.telemetry, card.readings, card.signals, now)
    tested = (burn_in.as_condition(conditions, now),) if burn_in is not None else ()
    record = burn_in.record if burn_in is not None else None
    new_fault = health.status == FALSE and (before is None or before.status != FALSE)
    return DeviceReport(
        device,
        device_apply_configuration(users, telemetry, health, *tested, burn_in=record),
        health.reason if new_fault else None,
    )
