"""How busy the parts of a card were since the last sample: NVML's GPM, for Hopper and later.

For MIG instances there is no other utilisation.
"""

import math
import threading
from typing import Any, Final

from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library

_PERCENT: Final = 0.01
_MIB: Final = float(1 << 20)
_METRICS: Final = {
    1: (Measure.GR_ENGINE_ACTIVE, _PERCENT),
    2: (Measure.SM_ACTIVE, _PERCENT),
    3: (Measure.SM_OCCUPANCY, _PERCENT),
    5: (Measure.TENSOR_ACTIVE, _PERCENT),
    10: (Measure.DRAM_ACTIVE, _PERCENT),
    11: (Measure.FP64_ACTIVE, _PERCENT),
    12: (Measure.FP32_ACTIVE, _PERCENT),
    13: (Measure.FP16_ACTIVE, _PERCENT),
    20: (Measure.PCIE_TX_BYTES, _MIB),
    21: (Measure.PCIE_RX_BYTES, _MIB),
    60: (Measure.NVLINK_RX_BYTES, _MIB),
    61: (Measure.NVLINK_TX_BYTES, _MIB),
}
"""The metrics by GPM's number, with the factor from its unit to ours."""


class Profiling:
    """Keeps one sample of each card and each GPU instance, to compare the next one with."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._last: dict[tuple[str, int | None], Any] = {}
        self._lock = threading.Lock()

    def measure(self, address: str, handle: object, gpu_instance: int | None = None) -> dict[str, float]:
        """The metrics since the last call; none at the first one, and on cards without GPM."""
        with self._lock:
            new = self._sample(handle, gpu_instance)
            last = self._last.pop((address, gpu_instance), None)
            if new is None:
                self._free(last)
                return {}
            self._last[address, gpu_instance] = new
            try:
                return self._between(last, new) if last is not None else {}
            finally:
                self._free(last)

    def stop(self) -> None:
        """Free every sample."""
        with self._lock:
            while self._last:
                self._free(self._last.popitem()[1])

    def _sample(self, handle: object, gpu_instance: int | None) -> Any:
        support = self._library.ask("nvmlGpmQueryDeviceSupport", handle)
        sample = self._library.ask("nvmlGpmSampleAlloc") if support and support.isSupportedDevice else None
        if sample is None:
            return None
        if gpu_instance is None:
            taken = self._library.ask("nvmlGpmSampleGet", handle, sample)
        else:
            taken = self._library.ask("nvmlGpmMigSampleGet", handle, gpu_instance, sample)
        if taken is None:
            self._free(sample)
        return taken

    def _between(self, last: object, new: object) -> dict[str, float]:
        nvml = self._library.nvml
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version = nvml.NVML_GPM_METRICS_GET_VERSION
        question.sample1, question.sample2 = last, new
        question.numMetrics = len(_METRICS)
        for place, number in enumerate(_METRICS):
            question.metrics[place].metricId = number
        if self._library.ask("nvmlGpmMetricsGet", question) is None:
            return {}
        answers = ((question.metrics[place], *_METRICS[number]) for place, number in enumerate(_METRICS))
        # Between two samples that are too close a real card has reported NaN.
        return {
            name: answer.value * factor
            for answer, name, factor in answers
            if not answer.nvmlReturn and math.isfinite(answer.value)
        }

    def _free(self, sample: object | None) -> None:
        if sample is not None:
            self._library.ask("nvmlGpmSampleFree", sample)
