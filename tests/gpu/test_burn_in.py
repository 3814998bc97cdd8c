"""A real card passes its burn-in, one whose memory is changed under the test does not, and the agent does both."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from blocking_wait import until
from gpu.card_env import CardEnv
from gpu.record import Record
from gpu.smi import SEARCH, Smi
from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.burnin.program import VendorBurnIn
from gpu_control_plane.agent.burnin.results import Sample, fault_during_test
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.nvidia.support import SUPPORT
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Reason

_SECONDS = 6.0

_SPOILED = """
# As the program, with one word of the memory changed between writing and reading.
import ctypes, sys
from array import array
from gpu_control_plane.agent.vendors.nvidia.cuda import burn_in
from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import Cuda, send

class Spoiled(Cuda):
    launches = words = 0

    def call(self, name, *arguments):
        super().call(name, *arguments)
        if name == "cuLaunchKernel":
            self.launches += 1
            self.words = ctypes.c_uint64.from_address(arguments[9][0]).value
        if name == "cuCtxSynchronize" and self.launches == 2:  # the proof was the first, writing zeros is the second
            send(self, ctypes.c_uint64(self.words + 8 * 12345), array("Q", [4]))

burn_in.Cuda = Spoiled
sys.exit(burn_in.main([*sys.argv[1:], "--alone"]))
"""


async def test_the_program_finds_nothing_wrong_with_this_card(
    card: Hardware, backend: Backend, smi: Smi, record: Record
) -> None:
    assert card.uuid is not None
    before = backend.signals(card.pci.address)
    with record.timed(f"burn-in of {_SECONDS:g} s, whole process"):
        found = await VendorBurnIn(lambda: SUPPORT.burn_in_command(SEARCH))(card.uuid, _SECONDS)
    readings = backend.readings(card.pci.address)
    record.compare("burn-in", found.reason, found.message)
    record.measure("burn-in: temperature at the end", readings.temperature or 0, "°C")
    assert (found.reason, found.busy) == (Reason.BURN_IN_PASSED, False), found
    assert fault_during_test(before, Sample(backend.signals(card.pci.address), readings), SUPPORT.health) is None
    tested = re.search(r"Tested (\d+) MiB .* (\d+) times", found.message)
    assert tested is not None
    assert int(tested[1]) > int(smi.query("memory.total")["memory.total"]) * 0.8, "most of the memory"
    assert int(tested[2]) >= 1
    assert smi.processes() == [], "nothing of it is left on the card"


def test_a_word_that_changes_is_found(card: Hardware) -> None:
    library = find_driver_library("libcuda.so.1", SEARCH.roots)
    ran = subprocess.run(
        [sys.executable, "-c", _SPOILED, str(card.uuid), "--seconds", "1", "--library", str(library)],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert '"stage": "memory"' in ran.stdout
    assert (
        "did not keep zeros: the first at byte 0x181c8 of the memory tested, wrong bits 0x0000000000000004"
        in ran.stdout
    )


@pytest.fixture
def burning(env: CardEnv) -> CardEnv:
    """The environment with an agent that burns cards in. The next start of it is without."""
    env.stop_agent()
    env.start_agent("--burn-in", "--burn-in-seconds", f"{_SECONDS:g}")
    return env


def test_the_agent_tests_a_card_in_no_pool_and_tells(burning: CardEnv, record: Record) -> None:
    try:
        with record.timed("agent started, card burned in"):
            until(lambda: _burned_in(burning).get("status") == "True", within=120)
        status = burning.published()["status"]
        assert _burned_in(burning)["reason"] == "Passed"
        assert status["burnIn"]["uuid"] == burning.uuid_of_card
        until(lambda: _tests(burning) == ["Burn-in passed"])
    finally:
        burning.stop_agent()
        burning.start_agent()
    until(lambda: burning.conditions().get("ReadyForPooling") == "True", within=60)
    assert _burned_in(burning)["reason"] == "Passed", "an agent that tests nothing keeps what was found"


def _burned_in(env: CardEnv) -> dict[str, Any]:
    conditions = env.published().get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "BurnedIn"), {})


def _tests(env: CardEnv) -> list[str]:
    return [each["what"] for each in env.published()["status"].get("history", []) if each["who"] == "gpu-agent"]
