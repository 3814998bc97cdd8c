"""Each check as a table: facts, the result, and what the sentence tells a person to do."""

import pytest

from gpu_control_plane.agent.validator.kernel import KernelResult
from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.steps import check_kernel, check_plugin, check_toolkit
from gpu_control_plane.agent.vendors.interface import CheckOutcome, passed
from gpu_control_plane.api.gpunodestate import StepResult

P, F, R = StepResult.PASSED, StepResult.FAILED, StepResult.RUNNING
OK, WRONG = KernelResult(ok=True), KernelResult(ok=False, message="cuInit answered 100.")


@pytest.mark.parametrize(
    ("facts", "result", "said"),
    [
        (ToolkitFacts(devices={"GPU-1": ()}), P, "can be resolved"),
        (ToolkitFacts(devices={"GPU-1": ()}, cdi_enabled=True), P, "can be resolved"),
        (ToolkitFacts(runtime="nvidia"), P, "given cards by nvidia"),
        (ToolkitFacts(runtime="nvidia", devices={"GPU-1": ("/dev/x",)}), P, "given cards by nvidia"),
        (ToolkitFacts(devices={"GPU-1": ()}, cdi_enabled=False), F, "enable_cdi"),
        (ToolkitFacts(devices={"GPU-1": ()}, unread_folder="/var/run/cdi"), F, "cdi_spec_dirs"),
        (ToolkitFacts(runtime="Runtime", missing_handler="nvidia"), F, "no handler nvidia"),
        (ToolkitFacts(), F, "no CDI specification"),
        (ToolkitFacts(damaged="x.json: bad"), F, "cannot be read (x.json: bad)"),
        (ToolkitFacts(devices={"GPU-1": (), "GPU-2": ("/dev/nvidia1",)}), F, "1 of 2 CDI devices"),
    ],
)
def test_toolkit(facts: ToolkitFacts, result: StepResult, said: str) -> None:
    found = check_toolkit(facts)
    assert found.result is result
    assert said in found.message


@pytest.mark.parametrize(
    ("results", "untested", "before", "result", "said"),
    [
        ({"a": OK, "b": OK}, {}, None, P, "right result on a, b."),
        ({"a": OK}, {"b": "in use"}, None, P, "on a. Not tested: b (in use)."),
        ({"a": OK, "b": WRONG}, {}, None, F, "b failed: cuInit answered 100."),
        ({"a": WRONG, "b": WRONG, "c": OK}, {}, None, F, "So did b."),
        ({"a": KernelResult(ok=True, simulated=True)}, {}, None, P, "Simulated, no kernel ran"),
        ({"a": KernelResult(ok=False, simulated=True, message="x")}, {}, None, F, "Simulated, no kernel ran: a failed"),
        ({}, {"a": "in use"}, passed("as before"), P, "as before"),
        ({}, {"a": "in use"}, CheckOutcome(F, "still bad"), F, "still bad"),
        ({}, {"a": "in use"}, CheckOutcome(StepResult.SKIPPED, "off"), R, "once one is free. Not tested: a (in use)."),
        ({}, {"a": "in use"}, None, R, "No card could be tested yet"),
        ({str(index): OK for index in range(16)}, {}, None, P, "and 12 more"),
    ],
)
def test_kernel(
    results: dict[str, KernelResult],
    untested: dict[str, str],
    before: CheckOutcome | None,
    result: StepResult,
    said: str,
) -> None:
    found = check_kernel(results, untested, before)
    assert found.result is result
    assert said in found.message


@pytest.mark.parametrize(
    ("facts", "result", "said"),
    [
        (PluginFacts(), P, "Nothing is ordered"),
        (PluginFacts(ordered=frozenset({"a"}), allocatable={"a": 1, "b": 0}), P, "lists every resource"),
        (PluginFacts(ordered=frozenset({"a", "b"}), allocatable={"a": 1}), F, "nothing to hand out of b"),
        (PluginFacts(ordered=frozenset({"a"}), allocatable={"a": 0}), F, "nothing to hand out of a"),
    ],
)
def test_plugin(facts: PluginFacts, result: StepResult, said: str) -> None:
    found = check_plugin(facts)
    assert found.result is result
    assert said in found.message
