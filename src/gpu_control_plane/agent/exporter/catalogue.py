"""The metrics of cards: dcgm-exporter's names, types and help, so that dashboards and alerts made for it keep working.

Both the exposition and the page in the documentation are made from this list. A metric that a card does not report is
left out of the exposition.
"""

from typing import Final

import msgspec

from gpu_control_plane.agent.backends.measures import Measure

XID_COUNT: Final = "DCGM_EXP_XID_ERRORS_COUNT"
"""By code, in the label `xid`. The agent counts what the driver reports."""


class Metric(msgspec.Struct, frozen=True):
    """HELP and TYPE of a metric."""

    name: str
    kind: str
    help: str


METRICS: Final[tuple[Metric, ...]] = (
    Metric(Measure.SM_CLOCK, "gauge", "SM clock frequency (in MHz)."),
    Metric(Measure.MEM_CLOCK, "gauge", "Memory clock frequency (in MHz)."),
    Metric(Measure.MEMORY_TEMP, "gauge", "Memory temperature (in C)."),
    Metric(Measure.GPU_TEMP, "gauge", "GPU temperature (in C)."),
    Metric(Measure.POWER_USAGE, "gauge", "Power draw (in W)."),
    Metric(Measure.TOTAL_ENERGY, "counter", "Total energy consumption since boot (in mJ)."),
    Metric(Measure.PCIE_REPLAYS, "counter", "Total number of PCIe retries."),
    Metric(Measure.GPU_UTIL, "gauge", "GPU utilization (in %)."),
    Metric(Measure.MEM_COPY_UTIL, "gauge", "Memory utilization (in %)."),
    Metric(Measure.ENC_UTIL, "gauge", "Encoder utilization (in %)."),
    Metric(Measure.DEC_UTIL, "gauge", "Decoder utilization (in %)."),
    Metric(Measure.XID_ERRORS, "gauge", "Value of the last XID error encountered."),
    Metric(XID_COUNT, "counter", "Count of XID errors since the agent started, by code."),
    Metric(Measure.POWER_VIOLATION, "counter", "Throttling duration due to power constraints (in ns)."),
    Metric(Measure.THERMAL_VIOLATION, "counter", "Throttling duration due to thermal constraints (in ns)."),
    Metric(Measure.SYNC_BOOST_VIOLATION, "counter", "Throttling duration due to sync-boost constraints (in ns)."),
    Metric(
        Measure.BOARD_LIMIT_VIOLATION,
        "counter",
        "Throttling duration due to board limit constraints (in ns).",
    ),
    Metric(Measure.LOW_UTIL_VIOLATION, "counter", "Throttling duration due to low utilization (in ns)."),
    Metric(
        Measure.RELIABILITY_VIOLATION,
        "counter",
        "Throttling duration due to reliability constraints (in ns).",
    ),
    Metric(Measure.CLOCKS_EVENT_REASONS, "gauge", "Reasons why the clocks are what they are, as a bit mask."),
    Metric(Measure.FB_FREE, "gauge", "Framebuffer memory free (in MiB)."),
    Metric(Measure.FB_USED, "gauge", "Framebuffer memory used (in MiB)."),
    Metric(Measure.FB_RESERVED, "gauge", "Framebuffer memory reserved (in MiB)."),
    Metric(Measure.SBE_VOLATILE, "counter", "Total number of single-bit volatile ECC errors."),
    Metric(Measure.DBE_VOLATILE, "counter", "Total number of double-bit volatile ECC errors."),
    Metric(Measure.SBE_AGGREGATE, "counter", "Total number of single-bit persistent ECC errors."),
    Metric(Measure.DBE_AGGREGATE, "counter", "Total number of double-bit persistent ECC errors."),
    Metric(Measure.RETIRED_SBE, "counter", "Total number of retired pages due to single-bit errors."),
    Metric(Measure.RETIRED_DBE, "counter", "Total number of retired pages due to double-bit errors."),
    Metric(Measure.RETIRED_PENDING, "counter", "Total number of pages pending retirement."),
    Metric(Measure.NVLINK_BANDWIDTH, "counter", "Total number of NVLink bandwidth counters for all lanes."),
    Metric(Measure.VGPU_LICENSE, "gauge", "vGPU License status"),
    Metric(Measure.UNCORRECTABLE_REMAPPED, "counter", "Number of remapped rows for uncorrectable errors"),
    Metric(Measure.CORRECTABLE_REMAPPED, "counter", "Number of remapped rows for correctable errors"),
    Metric(Measure.REMAP_FAILURE, "gauge", "Whether remapping of rows has failed"),
    Metric(Measure.GR_ENGINE_ACTIVE, "gauge", "Ratio of time the graphics engine is active."),
    Metric(Measure.SM_ACTIVE, "gauge", "The ratio of cycles an SM has at least 1 warp assigned."),
    Metric(Measure.SM_OCCUPANCY, "gauge", "The ratio of number of warps resident on an SM."),
    Metric(Measure.TENSOR_ACTIVE, "gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
    Metric(Measure.FP64_ACTIVE, "gauge", "Ratio of cycles the fp64 pipes are active."),
    Metric(Measure.FP32_ACTIVE, "gauge", "Ratio of cycles the fp32 pipes are active."),
    Metric(Measure.FP16_ACTIVE, "gauge", "Ratio of cycles the fp16 pipes are active."),
    Metric(
        Measure.DRAM_ACTIVE,
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
    ),
    Metric(
        Measure.PCIE_TX_BYTES,
        "gauge",
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data "
        "payloads - in bytes per second.",
    ),
    Metric(
        Measure.PCIE_RX_BYTES,
        "gauge",
        "The rate of data received over the PCIe bus - including both protocol headers and data payloads "
        "- in bytes per second.",
    ),
    Metric(
        Measure.NVLINK_TX_BYTES,
        "gauge",
        "The rate of data transmitted over NVLink, not including protocol headers, in bytes per second.",
    ),
    Metric(
        Measure.NVLINK_RX_BYTES,
        "gauge",
        "The rate of data received over NVLink, not including protocol headers, in bytes per second.",
    ),
)
