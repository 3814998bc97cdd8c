"""Cards: faults, error reports, heat and memory."""

from typing import Final

from monitoring.alert import Alert, Group, LogLine, Severity
from monitoring.promql import CARD, by_card, history, one_of

from gpu_control_plane.agent.health import COOL_CELSIUS, HOT_CELSIUS
from gpu_control_plane.agent.step.card_notices import MANY_CORRECTED_ERRORS
from gpu_control_plane.agent.vendors.nvidia.health import APPLICATION_XIDS, HARMLESS_XIDS
from gpu_control_plane.api.names import EventReason

_JUDGED: Final = LogLine("agent.node.agent", "card health")
_CARD: Final = "Card {{ $labels.gpu }} ({{ $labels.UUID }}) of {{ $labels.Hostname }}"
_NOT_THE_CARD: Final = one_of(APPLICATION_XIDS | HARMLESS_XIDS)
_PROGRAMS: Final = one_of(APPLICATION_XIDS)


def _reported(matcher: str) -> str:
    """Error reports of the last 15 minutes. A code that was never seen before has no zero to have grown from.

    Nor has one that was not scraped for a while: it is new when it was not there during the half hour before.
    """
    count = f"DCGM_EXP_XID_ERRORS_COUNT{{{matcher}}}"
    by = f"max by ({CARD}, xid)"
    known = f"{by} (last_over_time({count}[30m] offset 15m))"
    return f"{by} (increase({count}[15m])) > 0 or ({by} ({count}) unless {known}) > 0"


CARDS: Final = Group(
    "cards",
    (
        Alert(
            name="GPUCardFaulted",
            expr="max by (node, device, reason) (gpu_device_faulted) == 1",
            hold="2m",
            severity=Severity.WARNING,
            summary="The card {{ $labels.device }} is out of service: {{ $labels.reason }}.",
            description="The card {{ $labels.device }} of {{ $labels.node }} is offered to no new pod, and a pod that "
            "has it keeps it. Its condition Healthy says what is wrong and what to do: "
            "kubectl describe gpudevice {{ $labels.device }}",
            events=(EventReason.DEVICE_FAULTED,),
            log=_JUDGED,
        ),
        Alert(
            name="GPUBurnInFailed",
            expr="max by (node, device, reason) (gpu_device_burn_in_failed) == 1",
            hold="1m",
            severity=Severity.WARNING,
            summary="The card {{ $labels.device }} did not pass its burn-in: {{ $labels.reason }}.",
            description="The card {{ $labels.device }} of {{ $labels.node }} joins no pool. Its condition BurnedIn "
            "says what was found and what to do: kubectl describe gpudevice {{ $labels.device }}",
            events=(EventReason.BURN_IN_FAILED,),
            log=LogLine("agent.node.burnin_runner", "burn-in ended"),
        ),
        Alert(
            name="GPUHardwareXID",
            expr=_reported(f'xid!~"{_NOT_THE_CARD}"'),
            hold="0m",
            severity=Severity.WARNING,
            summary="XID {{ $labels.xid }} on card {{ $labels.gpu }} of {{ $labels.Hostname }}.",
            description=f"{_CARD} reported XID {{{{ $labels.xid }}}}, which speaks against the card itself. It is "
            "taken out of service; the runbook says which codes ask for a reset, a restart or a repair.",
            events=(EventReason.DEVICE_FAULTED,),
            log=_JUDGED,
        ),
        Alert(
            name="GPUApplicationXID",
            expr=_reported(f'xid=~"{_PROGRAMS}"'),
            hold="0m",
            severity=Severity.INFO,
            summary="A program failed on card {{ $labels.gpu }} of {{ $labels.Hostname }} with XID {{ $labels.xid }}.",
            description=f"{_CARD} reported XID {{{{ $labels.xid }}}}, which a program causes, not the card. The card "
            "stays in service. Look at the log of the pod that has it.",
            events=(EventReason.PROGRAM_FAILED,),
        ),
        Alert(
            name="GPUCardHeatingUp",
            # It lasts longer than the window looks back: a card that has begun to work gets warm quickly, and stops.
            expr=f"{by_card('DCGM_FI_DEV_GPU_TEMP')} > {COOL_CELSIUS} and "
            f"predict_linear({history('DCGM_FI_DEV_GPU_TEMP', '10m')}, 1800) > {HOT_CELSIUS}",
            hold="15m",
            severity=Severity.WARNING,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} will be too hot within half an hour.",
            description=f"{_CARD} is at " + '{{ $value | printf "%.0f" }} °C and rising. '
            f"From {HOT_CELSIUS} °C on it is out of service. Check fans, air flow and the temperature of the room.",
            events=(EventReason.HEATING_UP,),
        ),
        Alert(
            name="GPUCardThrottledByHeat",
            expr=f"rate({history('DCGM_FI_DEV_THERMAL_VIOLATION', '10m')}) / 1e9 > 0.05",
            hold="10m",
            severity=Severity.WARNING,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} slows itself down because of heat.",
            description=f"{_CARD} spends {{{{ $value | humanizePercentage }}}} of its time slowed down by heat, so "
            "programs on it take longer. Check fans, air flow and the temperature of the room.",
            events=(EventReason.DEVICE_FAULTED,),
            log=_JUDGED,
        ),
        Alert(
            name="GPUMemoryErrorsRising",
            expr=f"increase({history('DCGM_FI_DEV_ECC_SBE_VOL_TOTAL', '1h')}) > {MANY_CORRECTED_ERRORS}",
            hold="10m",
            severity=Severity.INFO,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} corrects many memory errors.",
            description=f"{_CARD} corrected more than {MANY_CORRECTED_ERRORS} memory errors within an hour. Nothing is "
            "lost, but such cards often fail later: plan a test of the card.",
            events=(EventReason.MEMORY_ERRORS_RISING,),
        ),
        Alert(
            name="GPUMemoryRowsRemapped",
            expr=f"increase({history('DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS', '1d', '5m')}) > 0",
            hold="5m",
            severity=Severity.WARNING,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} has replaced a bad row of memory.",
            description=f"{_CARD} lost a row of memory to errors that it could not correct. The spare row is in use "
            "after a reset: reset the card once it is free.",
            events=(EventReason.ROW_REMAPPED,),
        ),
        Alert(
            name="GPUMemoryUncorrected",
            expr=f"increase({history('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL', '1h')}) > 0",
            hold="0m",
            severity=Severity.WARNING,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} had a memory error that it could not correct.",
            description=f"{_CARD} lost data. The program that used it has ended, or its result is wrong. Reset the "
            "card; replace it if the errors come back.",
            # One that ended a single program leaves the card in service.
            events=(EventReason.DEVICE_FAULTED, EventReason.PROGRAM_FAILED),
            log=_JUDGED,
        ),
        Alert(
            name="GPURowRemapFailed",
            expr=f"{by_card('DCGM_FI_DEV_ROW_REMAP_FAILURE')} > 0",
            hold="0m",
            severity=Severity.WARNING,
            summary="Card {{ $labels.gpu }} of {{ $labels.Hostname }} has no spare memory left.",
            description=f"{_CARD} could not replace a bad row of memory, and is offered to no new pod. No reset helps: "
            "replace the card.",
            events=(EventReason.DEVICE_FAULTED,),
            log=_JUDGED,
        ),
    ),
)
