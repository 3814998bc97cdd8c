"""Situations of cards: faults, error reports, heat and memory."""

from typing import Final

from monitoring.situations import Fired, Situation, led, stale

_CARD: Final = 'Hostname="w1",gpu="0",UUID="GPU-a"'
_ON_CARD: Final = {"Hostname": "w1", "gpu": "0", "UUID": "GPU-a"}
_BROKEN: Final = {"node": "w1", "device": "w1-0", "reason": "XID79"}


def _card(metric: str, more: str = "") -> str:
    return f"{metric}{{{_CARD}{more}}}"


CARDS: Final = (
    Situation(
        alert="GPUCardFaulted",
        name="two replicas tell of one card",
        series={
            led("gpu_device_faulted", **_BROKEN): "1x10",
            stale("gpu_device_faulted", **_BROKEN): "1x10",
        },
        after=5,
        fires=(Fired(_BROKEN),),
    ),
    Situation(
        alert="GPUCardFaulted",
        name="the card came back at once",
        series={led("gpu_device_faulted", **_BROKEN): "1 1 stale"},
        after=5,
    ),
    Situation(
        alert="GPUHardwareXID",
        name="the first report of a code",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="79"'): "_x20 1x10"},
        after=25,
        fires=(Fired({**_ON_CARD, "xid": "79"}),),
    ),
    Situation(
        alert="GPUHardwareXID",
        name="another report of a known code",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="48"'): "1x40 2x10"},
        after=45,
        fires=(Fired({**_ON_CARD, "xid": "48"}),),
    ),
    Situation(
        alert="GPUHardwareXID",
        name="a report of long ago",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="79"'): "1x60"},
        after=60,
    ),
    Situation(
        alert="GPUHardwareXID",
        name="a program's fault, and a notice",
        series={
            _card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="13"'): "_x20 1x10",
            _card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="43"'): "_x20 1x10",
        },
        after=25,
    ),
    Situation(
        alert="GPUHardwareXID",
        name="a code that nobody knows is taken seriously",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="999"'): "_x20 1x10"},
        after=25,
        fires=(Fired({**_ON_CARD, "xid": "999"}),),
    ),
    Situation(
        alert="GPUApplicationXID",
        name="a program's fault",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="31"'): "_x20 1x10"},
        after=25,
        fires=(Fired({**_ON_CARD, "xid": "31"}),),
    ),
    Situation(
        alert="GPUApplicationXID",
        name="a program's fault of long ago",
        series={_card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="31"'): "1x60"},
        after=60,
    ),
    Situation(
        alert="GPUApplicationXID",
        name="the card's fault, and a notice",
        series={
            _card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="79"'): "_x20 1x10",
            _card("DCGM_EXP_XID_ERRORS_COUNT", ',xid="43"'): "_x20 1x10",
        },
        after=25,
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="warmer every minute",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "60+0.6x60"},
        after=50,
        early=36,
        fires=(Fired(_ON_CARD, "90"),),
    ),
    Situation(
        alert="GPUCardHeatingUp", name="hot and steady", series={_card("DCGM_FI_DEV_GPU_TEMP"): "88x60"}, after=60
    ),
    Situation(
        alert="GPUCardHeatingUp",
        name="work has begun on a cool card",
        series={_card("DCGM_FI_DEV_GPU_TEMP"): "30x20 30+2x15"},
        after=35,
    ),
    Situation(
        alert="GPUCardThrottledByHeat",
        name="a tenth of the time",
        series={_card("DCGM_FI_DEV_THERMAL_VIOLATION"): "0+6000000000x40"},
        after=30,
        early=8,
        fires=(Fired(_ON_CARD, "10%"),),
    ),
    Situation(
        alert="GPUCardThrottledByHeat",
        name="a moment now and then",
        series={_card("DCGM_FI_DEV_THERMAL_VIOLATION"): "0+1000000000x40"},
        after=30,
    ),
    Situation(
        alert="GPUMemoryErrorsRising",
        name="five a minute",
        series={_card("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"): "0+5x120"},
        after=110,
        early=25,
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
        series={_card("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): "0x60 1x60"},
        after=80,
        early=63,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryRowsRemapped",
        name="a row last year, and one replaced in time",
        series={
            _card("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): "1x120",
            _card("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"): "0x60 1x60",
        },
        after=80,
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="an error just now",
        series={_card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "0x60 1x10"},
        after=65,
        fires=(Fired(_ON_CARD),),
    ),
    Situation(
        alert="GPUMemoryUncorrected",
        name="only corrected ones",
        series={
            _card("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"): "0x60 900x10",
            _card("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "3x70",
        },
        after=65,
    ),
    Situation(
        alert="GPURowRemapFailed",
        name="no spare row",
        series={_card("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "1x5"},
        after=1,
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
