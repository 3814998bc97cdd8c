"""What a card measures. Each value is a call of its own: one that a card does not report must not hide the others."""

from typing import Any, Final

from gpu_control_plane.agent.backends.interface import Readings
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library
from gpu_control_plane.agent.vendors.nvidia.nvml.signals import clock_reasons

_MIB: Final = 1 << 20
_MEMORY_TEMP: Final = 82
_NVLINK_DATA: Final = (138, 139)
_ALL_LINKS: Final = 0xFFFFFFFF


def readings(library: Library, handle: object) -> Readings:
    nvml = library.nvml
    power = library.ask("nvmlDeviceGetPowerUsage", handle)
    busy = library.ask("nvmlDeviceGetUtilizationRates", handle)
    used = _memory(library, handle).get(Measure.FB_USED)
    return Readings(
        temperature=library.ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        power=None if power is None else round(power / 1000),
        utilisation=None if busy is None else busy.gpu,
        memory_used=None if used is None else int(used),
    )


def card_samples(library: Library, handle: object) -> dict[str, float]:
    """Everything that a whole card reports, except what is measured between two samples.

    The total energy comes first: that call takes the longest (4 ms on an H200), and in the meantime the event loop
    writes the agent's own metrics.
    """
    return {
        **_reported({Measure.TOTAL_ENERGY: library.ask("nvmlDeviceGetTotalEnergyConsumption", handle)}),
        **_memory(library, handle),
        **_load(library, handle),
        **_wear(library, handle),
        **_slowdowns(library, handle),
        **_links(library, handle),
    }


def instance_samples(library: Library, device: object) -> dict[str, float]:
    """What a MIG instance reports itself."""
    return _memory(library, device)


def pcie_throughput(library: Library, handle: object) -> dict[str, float]:
    """For cards without profiling only: the driver takes 20 ms to measure the bus."""
    nvml = library.nvml
    rates = {
        Measure.PCIE_TX_BYTES: library.ask("nvmlDeviceGetPcieThroughput", handle, nvml.NVML_PCIE_UTIL_TX_BYTES),
        Measure.PCIE_RX_BYTES: library.ask("nvmlDeviceGetPcieThroughput", handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
    }
    return {name: rate * 1000.0 for name, rate in rates.items() if rate is not None}


def _memory(library: Library, handle: object) -> dict[str, float]:
    """The older form of the call counts memory that the driver reserves as used."""
    exact = library.ask("nvmlDeviceGetMemoryInfo", handle, library.nvml.nvmlMemory_v2)
    memory = exact or library.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is None:
        return {}
    values = {Measure.FB_FREE: memory.free, Measure.FB_USED: memory.used}
    if exact:
        values[Measure.FB_RESERVED] = exact.reserved
    return {name: value // _MIB for name, value in values.items()}


def _load(library: Library, handle: object) -> dict[str, float]:
    nvml = library.nvml
    busy = library.ask("nvmlDeviceGetUtilizationRates", handle)
    encoder = library.ask("nvmlDeviceGetEncoderUtilization", handle)
    decoder = library.ask("nvmlDeviceGetDecoderUtilization", handle)
    power = library.ask("nvmlDeviceGetPowerUsage", handle)
    return _reported(
        {
            Measure.SM_CLOCK: library.ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            Measure.MEM_CLOCK: library.ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            Measure.GPU_TEMP: library.ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            Measure.MEMORY_TEMP: library.field(handle, _MEMORY_TEMP),
            Measure.POWER_USAGE: None if power is None else power / 1000,
            Measure.PCIE_REPLAYS: library.ask("nvmlDeviceGetPcieReplayCounter", handle),
            Measure.GPU_UTIL: busy.gpu if busy else None,
            Measure.MEM_COPY_UTIL: busy.memory if busy else None,
            Measure.ENC_UTIL: encoder[0] if encoder else None,
            Measure.DEC_UTIL: decoder[0] if decoder else None,
            Measure.VGPU_LICENSE: _license(library, handle),
        }
    )


def _wear(library: Library, handle: object) -> dict[str, float]:
    nvml = library.nvml
    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    rows = library.ask("nvmlDeviceGetRemappedRows", handle) or (None, None, None, None)
    retired = [library.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
    return _reported(
        {
            Measure.CORRECTABLE_REMAPPED: rows[0],
            Measure.UNCORRECTABLE_REMAPPED: rows[1],
            Measure.REMAP_FAILURE: rows[3],
            Measure.SBE_VOLATILE: library.ask("nvmlDeviceGetTotalEccErrors", handle, corrected, volatile),
            Measure.DBE_VOLATILE: library.ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile),
            Measure.SBE_AGGREGATE: library.ask("nvmlDeviceGetTotalEccErrors", handle, corrected, aggregate),
            Measure.DBE_AGGREGATE: library.ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, aggregate),
            Measure.RETIRED_SBE: None if retired[0] is None else len(retired[0]),
            Measure.RETIRED_DBE: None if retired[1] is None else len(retired[1]),
            Measure.RETIRED_PENDING: library.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle),
        }
    )


def _slowdowns(library: Library, handle: object) -> dict[str, float]:
    nvml = library.nvml
    policies = {
        Measure.POWER_VIOLATION: nvml.NVML_PERF_POLICY_POWER,
        Measure.THERMAL_VIOLATION: nvml.NVML_PERF_POLICY_THERMAL,
        Measure.SYNC_BOOST_VIOLATION: nvml.NVML_PERF_POLICY_SYNC_BOOST,
        Measure.BOARD_LIMIT_VIOLATION: nvml.NVML_PERF_POLICY_BOARD_LIMIT,
        Measure.LOW_UTIL_VIOLATION: nvml.NVML_PERF_POLICY_LOW_UTILIZATION,
        Measure.RELIABILITY_VIOLATION: nvml.NVML_PERF_POLICY_RELIABILITY,
    }
    lost = {name: library.ask("nvmlDeviceGetViolationStatus", handle, policy) for name, policy in policies.items()}
    times = {name: time.violationTime if time else None for name, time in lost.items()}
    return _reported({**times, Measure.CLOCKS_EVENT_REASONS: clock_reasons(library, handle)})


def _links(library: Library, handle: object) -> dict[str, float]:
    sent = [library.field(handle, field, _ALL_LINKS) for field in _NVLINK_DATA]
    found = [amount for amount in sent if amount is not None]
    return {Measure.NVLINK_BANDWIDTH: sum(found)} if found else {}


def _license(library: Library, handle: object) -> float | None:
    """1 where a virtual GPU has its licence; 0 on real cards, which need none."""
    features = library.ask("nvmlDeviceGetGridLicensableFeatures", handle)
    if features is None:
        return None
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return float(any(feature.featureState for feature in listed))


def _reported(values: dict[Measure, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}
