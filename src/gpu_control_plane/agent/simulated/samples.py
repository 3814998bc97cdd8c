"""What simulated cards measure: one number drives all others, so that they fit together as on a real card."""

from typing import Final

from gpu_control_plane.agent.backends.interface import Instance, Signals
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.simulated.models import Load, Profile

_SLOW_MHZ: Final = 345
_FAST_MHZ: Final = 1980
_MEMORY_MHZ: Final = 3201
_RESERVED_MIB: Final = 616
_SLICES: Final = 8
_GIGABYTE: Final = 1e9
_IDLE: Final = 0x1
_HW_THERMAL: Final = 0x40


def card_samples(profile: Profile, load: Load, signals: Signals, uptime: float) -> dict[str, float]:
    """Everything a whole card measures. Counters grow with `uptime`, in seconds."""
    busy = load.utilisation / 100
    samples: dict[str, float] = {
        Measure.SM_CLOCK: _FAST_MHZ if busy else _SLOW_MHZ,
        Measure.MEM_CLOCK: _MEMORY_MHZ,
        Measure.GPU_TEMP: load.temperature,
        Measure.MEMORY_TEMP: load.temperature + 1,
        Measure.POWER_USAGE: load.power,
        Measure.TOTAL_ENERGY: round(uptime * profile.idle.power * 1000),
        Measure.PCIE_REPLAYS: 0,
        Measure.GPU_UTIL: load.utilisation,
        Measure.MEM_COPY_UTIL: round(load.utilisation / 2),
        Measure.ENC_UTIL: 0,
        Measure.DEC_UTIL: 0,
        Measure.XID_ERRORS: signals.xids[-1] if signals.xids else 0,
        Measure.VGPU_LICENSE: 0,
        Measure.CORRECTABLE_REMAPPED: 0,
        Measure.UNCORRECTABLE_REMAPPED: int(signals.remap_pending),
        Measure.REMAP_FAILURE: int(signals.remap_failed),
        Measure.SBE_VOLATILE: 0,
        Measure.DBE_VOLATILE: signals.uncorrected_ecc,
        Measure.SBE_AGGREGATE: 0,
        Measure.DBE_AGGREGATE: signals.uncorrected_ecc,
        Measure.POWER_VIOLATION: 0,
        Measure.THERMAL_VIOLATION: round(uptime * 1e9) if signals.overheated else 0,
        Measure.CLOCKS_EVENT_REASONS: (0 if busy else _IDLE) | (_HW_THERMAL if signals.overheated else 0),
        **_memory(profile.memory_mib, load.memory_used, _RESERVED_MIB),
        **_activity(busy),
        Measure.PCIE_TX_BYTES: busy * _GIGABYTE,
        Measure.PCIE_RX_BYTES: busy * 2 * _GIGABYTE,
    }
    if profile.nvlink:
        samples[Measure.NVLINK_BANDWIDTH] = round(uptime * _GIGABYTE / 1024)
    return samples


def instance_samples(profile: Profile, instance: Instance, memory_mib: int, *, busy: bool) -> dict[str, float]:
    """The few things that are measured for each MIG instance apart."""
    load = profile.busy if busy else profile.idle
    used = min(load.memory_used * instance.size // _SLICES, memory_mib)
    return {**_memory(memory_mib, used, reserved=0), **_activity(load.utilisation / 100)}


def _memory(total: int, used: int, reserved: int) -> dict[str, float]:
    free = max(total - used - reserved, 0)
    return {Measure.FB_FREE: free, Measure.FB_USED: used, Measure.FB_RESERVED: reserved}


def _activity(busy: float) -> dict[str, float]:
    return {
        Measure.GR_ENGINE_ACTIVE: busy,
        Measure.SM_ACTIVE: busy * 0.9,
        Measure.SM_OCCUPANCY: busy * 0.5,
        Measure.TENSOR_ACTIVE: busy * 0.4,
        Measure.DRAM_ACTIVE: busy * 0.6,
    }
