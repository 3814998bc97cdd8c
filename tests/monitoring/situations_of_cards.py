"""Situations of cards: faults, error reports, heat and memory."""

from typing import Final

from monitoring.situations import Fired, Situation, led, stale

_CARD: Final = 'Hostname="w1",gpu="0",UUID="GPU-a"'
_ON_CARD: Final = {"Hostname": "w1", "gpu": "0", "UUID": "GPU-a"}
_BROKEN: Final = {"node": "w1", "device": "w1-0", "reason": "XID79"}
_UNTESTED: Final = {"node": "w1", "device": "w1-0", "reason": "MemoryErrors"}


def _card(metric: str, more: str = "") -> str:
    return f"{metric}{{{_CARD}{more}}}"


def _xid(code: int) -> str:
    return _card("DCGM_EXP_XID_ERRORS_COUNT", f',xid="{code}"')


def _reports(alert: str, code: int, others: tuple[int, ...]) -> tuple[Situation, ...]:
    fires = (Fired({**_ON_CARD, "xid": str(code)}),)
    return (
        Situation(
            alert=alert,
            name="the first report of a code",
            series={_xid(code): "_x20 1x60"},
            since=20,
            until=34,
            fires=fires,
        ),
        Situation(
            alert=alert,
            name="another report of a known code",
            series={_xid(code): "1x40 2x60"},
            since=41,
            until=54,
            fires=fires,
        ),
        Situation(
            alert=alert,
            name="a code that comes back, long after the agent was replaced",
            series={_xid(code): "1x20 _x60 1x20"},
            since=81,
            fires=fires,
        ),
        Situation(
            alert=alert,
            name="a report of long ago, and Prometheus was away for a while",
            series={_xid(code): "1x60 _x20 1x60"},
            until=14,
            after=140,
            fires=fires,
        ),
        Situation(
            alert=alert,
            name="none of this code, and some of another kind",
            series={_xid(code): "0x30", **{_xid(other): "_x20 1x10" for other in others}},
            after=30,
        ),
    )


_FAULTS: Final = (
    Situation(
        alert="GPUCardFaulted",
        name="two replicas tell of one card",
        series={
            led("gpu_device_faulted", **_BROKEN): "1x10",
            stale("gpu_device_faulted", **_BROKEN): "1x10",
        },
        fires=(Fired(_BROKEN),),
    ),
    Situation(
        alert="GPUCardFaulted",
        name="the card came back at once",
        series={led("gpu_device_faulted", **_BROKEN): "1 1 stale"},
        after=5,
    ),
    Situation(
        alert="GPUBurnInFailed",
        name="two replicas tell of one card",
        series={
            led("gpu_device_burn_in_failed", **_UNTESTED): "1x10",
            stale("gpu_device_burn_in_failed", **_UNTESTED): "1x10",
        },
        fires=(Fired(_UNTESTED),),
    ),
    Situation(
        alert="GPUBurnInFailed",
        name="cards are being tested, and some have passed",
        series={
            led("gpu_burn_in_devices", reason="BurningIn"): "3x10",
            led("gpu_burn_in_devices", reason="Passed"): "5x10",
        },
        after=10,
    ),
)

_HEAT: Final = (
    Situation(
        alert="GPUCardHeatingUp",
        name="warmer every minute",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "60+0.5x70"},
        since=41,
        fires=(Fired(_ON_CARD, "88"),),
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="warmer in steps, and handed from pod to pod",
        series={
            _card("DCGM_FI_DEV_GPU_TEMP", ',pod="a"'): "81x5 84x5 stale",
            _card("DCGM_FI_DEV_GPU_TEMP", ',pod="b"'): "_x12 87x5 90x5 93x5",
        },
        since=7,
        fires=(Fired(_ON_CARD, "90"),),
    ),
    Situation(
        alert="GPUCardHeatingUp", name="hot and steady", series={_card("DCGM_FI_DEV_GPU_TEMP"): "88x60"}, after=60
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="warmer, but an hour would not be enough",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "79+0.25x30 86x30"},
        after=60,
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="work has begun on a card that is well cooled",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "40x20 40+1.5x26 79x30"},
        after=75,
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="work has begun on a card that gets hot, and stays so",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "35x20 49 59 66 71 75 77 79 80 81 82 83x40"},
        after=70,
    ),
    Situation(
        alert="GPUCardThrottledByHeat",
        name="a tenth of the time",
        series={_card("DCGM_FI_DEV_THERMAL_VIOLATION"): "0x20 0+6000000000x40"},
        since=27,
        fires=(Fired(_ON_CARD, "10%"),),
    ),
    Situation(
        alert="GPUCardThrottledByHeat",
        name="a moment now and then",
        series={_card("DCGM_FI_DEV_THERMAL_VIOLATION"): "0+1000000000x40"},
        after=40,
    ),
)

_MEMORY: Final = (
    Situation(
        alert="GPUMemoryErrorsRising",
        name="five a minute, for half an hour",
        series={_card("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"): "0+5x30 150x100"},
        since=21,
        until=68,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryErrorsRising",
        name="many of long ago, one an hour now",
        series={_card("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"): "5000x60 5001x60"},
        after=110,
    ),
    Situation(
        alert="GPUMemoryRowsRemapped",
        name="a row today",
        series={_card("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): "0x60 1x1600"},
        since=65,
        until=1499,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryRowsRemapped",
        name="a row last year, and one replaced in time",
        series={
            _card("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): "1x120",
            _card("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"): "0x60 1x60",
        },
        after=110,
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="an error just now",
        series={_card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "0x60 1x100"},
        since=61,
        until=118,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="an error that ended the pod before anybody looked",
        series={
            _card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ',pod="a"'): "0x59 stale",
            _card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "_x60 1x10",
        },
        since=60,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="the driver was loaded anew, and counts from nothing",
        series={_card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "3x60 0x60"},
        after=110,
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="only corrected ones",
        series={
            _card("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"): "0x60 900x10",
            _card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "3x70",
        },
        after=70,
    ),
    Situation(
        alert="GPURowRemapFailed",
        name="no spare row",
        series={_card("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "0x2 1x5"},
        since=3,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPURowRemapFailed",
        name="a replacement is pending",
        series={
            _card("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "0x5",
            _card("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): "1x5",
        },
        after=5,
    ),
)

CARDS: Final = (
    *_FAULTS,
    *_reports("GPUHardwareXID", 79, (13, 43)),
    Situation(
        alert="GPUHardwareXID",
        name="an unknown XID fires",
        series={_xid(999): "_x20 1x10"},
        since=20,
        fires=(Fired({**_ON_CARD, "xid": "999"}),),
    ),
    *_reports("GPUApplicationXID", 31, (79, 43)),
    *_HEAT,
    *_MEMORY,
)
