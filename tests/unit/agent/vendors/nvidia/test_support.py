"""NVIDIA's programs start, find the driver's library, and answer even where there is none."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.burnin.program import VendorBurnIn
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.validator.kernel import VendorKernel
from gpu_control_plane.agent.vendors.nvidia.support import SUPPORT
from gpu_control_plane.api.names import Reason
from unit.agent.driver.trees import VERSION, Tree

NOWHERE = ("--library", "/nowhere/libcuda.so.1")


@pytest.mark.parametrize("command", [SUPPORT.kernel_command, SUPPORT.burn_in_command])
def test_programs_are_told_where_the_library_is(tmp_path: Path, command: object) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64")
    assert callable(command)
    words = command(DriverSearch(driver_roots=(tree.root,)))
    assert words[-2:] == ("--library", str(tree.at(f"/usr/lib64/libcuda.so.{VERSION}")))
    assert "--library" not in command(DriverSearch(driver_roots=(tmp_path / "absent",)))


async def test_the_kernel_program_runs_and_answers_without_a_driver() -> None:
    command = SUPPORT.kernel_command(DriverSearch(driver_roots=()))
    found = await VendorKernel(lambda: (*command, *NOWHERE))("GPU-1")
    assert (found.ok, found.simulated) == (False, False)
    assert "/nowhere/libcuda.so.1 cannot be loaded" in found.message


async def test_the_burn_in_program_runs_and_answers_without_a_driver() -> None:
    command = SUPPORT.burn_in_command(DriverSearch(driver_roots=()))
    found = await VendorBurnIn(lambda: (*command, *NOWHERE))("GPU-1", 1.0)
    assert (found.reason, "/nowhere/libcuda.so.1 cannot be loaded" in found.message) == (Reason.BURN_IN_FAILED, True)
