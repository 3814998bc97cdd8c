"""The exporter tells what the driver's own tool tells, and a scrape costs little more than the driver's answers."""

import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pynvml  # type: ignore[import-untyped]

from gpu.card_env import CardEnv
from gpu.readings import PROFILING, agree, fetch, scrape
from gpu.record import Record
from gpu.smi import SEARCH, Smi
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend

_ROUNDS = 40
_PAUSE_SECONDS = 0.25
_MOST = 1.2


def test_an_idle_card_measures_what_nvidia_smi_says(env: CardEnv, smi: Smi, record: Record) -> None:
    samples = agree(env.port, smi, record, "idle")
    labels = samples["DCGM_FI_DEV_GPU_TEMP"].labels
    assert labels["UUID"] == env.uuid_of_card
    assert labels["modelName"] == smi.query("name")["name"]
    assert "pod" not in labels


def test_profiling_metrics_are_there(env: CardEnv) -> None:
    scrape(env.port)
    time.sleep(0.2)  # They are told about the time between two scrapes.
    missing = set(PROFILING) - scrape(env.port).keys()
    assert not missing


def test_a_scrape_costs_little_more_than_the_calls_it_makes(env: CardEnv, record: Record) -> None:
    """The bare cost is that of the same calls: a pass over the card, with the time inside the driver's library kept.

    How long the driver takes differs by half from one second to the next, so the two take turns; and it answers faster
    when it has just been asked, as no Prometheus does, so there is a pause before each.
    """
    stopwatch = _Stopwatch()
    backend = NVMLBackend(find_driver_library("libnvidia-ml.so.1", SEARCH.roots), nvml=stopwatch)
    backend.open()
    bare, whole = [], []
    try:
        for _ in range(_ROUNDS + 1):
            time.sleep(_PAUSE_SECONDS)
            bare.append(stopwatch.time(lambda: backend.samples(env.hardware.pci.address)))
            time.sleep(_PAUSE_SECONDS)
            began = time.perf_counter()
            fetch(env.port)
            whole.append(time.perf_counter() - began)
    finally:
        backend.close()
    inside, around = statistics.median(bare[1:]), statistics.median(whole[1:])
    record.measure(f"scrape over HTTP, median of {_ROUNDS}", around * 1000, "ms")
    record.measure(f"the same NVML calls, bare, median of {_ROUNDS}", inside * 1000, "ms")
    record.measure("scrape against the same NVML calls", around / inside, "x")
    assert around <= _MOST * inside


class _Stopwatch(ModuleType):
    """The NVML binding, with the time spent in its functions."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(pynvml, name)
        return self._watched(found) if callable(found) and name.startswith("nvml") else found

    def __setattr__(self, name: str, value: object) -> None:
        if name == "nvmlLib":
            setattr(pynvml, name, value)
        else:
            super().__setattr__(name, value)

    def time(self, work: Callable[[], object]) -> float:
        """How long the functions took that this work called."""
        self.seconds = 0.0
        work()
        return self.seconds

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        return call
