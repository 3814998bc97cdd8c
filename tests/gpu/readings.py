"""What the exporter says, and how it compares with `nvidia-smi` at the same moment."""

import urllib.request
from collections.abc import Callable, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from blocking_wait import until
from gpu.record import Record
from gpu.smi import Smi
from gpu_control_plane.agent.backends.measures import Measure


class Sample(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    value: float


class Judged(msgspec.Struct, frozen=True):
    """A measurement that `nvidia-smi` knows, too."""

    field: str
    tolerance: float
    read: Callable[[str], float] = float


PAIRS: Mapping[str, Judged] = {
    Measure.GPU_TEMP: Judged("temperature.gpu", 2),
    Measure.MEMORY_TEMP: Judged("temperature.memory", 2),
    Measure.POWER_USAGE: Judged("power.draw", 15),
    Measure.SM_CLOCK: Judged("clocks.sm", 30),
    Measure.MEM_CLOCK: Judged("clocks.mem", 0),
    Measure.FB_USED: Judged("memory.used", 1),
    Measure.FB_FREE: Judged("memory.free", 1),
    Measure.FB_RESERVED: Judged("memory.reserved", 1),
    Measure.GPU_UTIL: Judged("utilization.gpu", 5),
    Measure.MEM_COPY_UTIL: Judged("utilization.memory", 5),
    Measure.ENC_UTIL: Judged("utilization.encoder", 0),
    Measure.DEC_UTIL: Judged("utilization.decoder", 0),
    Measure.SBE_VOLATILE: Judged("ecc.errors.corrected.volatile.total", 0),
    Measure.DBE_VOLATILE: Judged("ecc.errors.uncorrected.volatile.total", 0),
    Measure.SBE_AGGREGATE: Judged("ecc.errors.corrected.aggregate.total", 0),
    Measure.DBE_AGGREGATE: Judged("ecc.errors.uncorrected.aggregate.total", 0),
    Measure.CLOCKS_EVENT_REASONS: Judged("clocks_event_reasons.active", 0, lambda text: float(int(text, 16))),
}
"""Tolerances are for what moves between two readings a moment apart; counters and fixed clocks have none."""

PROFILING = (
    *(Measure.GR_ENGINE_ACTIVE, Measure.SM_ACTIVE, Measure.SM_OCCUPANCY, Measure.TENSOR_ACTIVE, Measure.DRAM_ACTIVE),
    *(Measure.FP64_ACTIVE, Measure.FP32_ACTIVE, Measure.FP16_ACTIVE, Measure.PCIE_TX_BYTES, Measure.PCIE_RX_BYTES),
)
"""What Hopper tells about the parts of a card."""


def fetch(port: int) -> str:
    """One scrape, as Prometheus makes it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def scrape(port: int) -> dict[str, Sample]:
    """The cards' metrics by name; with one card, each has one series."""
    return {
        sample.name.removesuffix("_total"): Sample(sample.labels, sample.value)  # the parser adds that to counters
        for family in text_string_to_metric_families(fetch(port))
        for sample in family.samples
        if sample.name.startswith("DCGM_")
    }


def agree(port: int, smi: Smi, record: Record, when: str) -> dict[str, Sample]:
    """Scrape until every value agrees with what `nvidia-smi` says around it, and note the last of both."""
    ours: dict[str, Sample] = {}
    theirs: dict[str, float] = {}

    def apart() -> list[str]:
        said = smi.query(*(pair.field for pair in PAIRS.values()))
        ours.update(scrape(port))
        theirs.update({name: pair.read(said[pair.field]) for name, pair in PAIRS.items()})
        return [
            name
            for name, pair in PAIRS.items()
            if name not in ours or abs(ours[name].value - theirs[name]) > pair.tolerance
        ]

    try:
        until(lambda: not apart(), within=15)
    finally:
        for name in PAIRS:
            record.compare(f"{name}, {when}", ours[name].value if name in ours else "absent", theirs.get(name))
    return ours
