"""The page says of burn-in what the code says."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.burnin import program
from gpu_control_plane.agent.health import HOT_CELSIUS
from gpu_control_plane.agent.vendors.nvidia.cuda import burn_in
from gpu_control_plane.agent.vendors.nvidia.cuda.burn_in_kernels import patterns
from gpu_control_plane.api.names import EventReason, Reason
from gpu_control_plane.pools.pending_reasons import PendingReason

PAGE = (Path(__file__).parents[4] / "docs" / "agent.md").read_text()
SECTION = " ".join(PAGE.partition("\n## Burn-in\n")[2].partition("\n## ")[0].split())


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.meaning.startswith("BurnedIn: ")])
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f" | `{reason.value}` | " in SECTION


@pytest.mark.parametrize(
    "word",
    [PendingReason.BURN_IN, PendingReason.BURN_IN_FAILED, EventReason.BURN_IN_PASSED, EventReason.BURN_IN_FAILED],
)
def test_what_pools_say_is_named(word: PendingReason | EventReason) -> None:
    assert f"`{word.value}`" in SECTION


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"{burn_in._MEMORY_SHARE * 100:g} % of the free memory" in SECTION
    assert f"{HOT_CELSIUS} °C or more" in SECTION
    assert ("eight patterns" in SECTION, len(patterns(0))) == (True, 8)
    assert ("twenty times quicker" in SECTION, program._SIMULATED_SPEEDUP) == (True, 20)
