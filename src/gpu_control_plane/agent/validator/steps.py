"""The checks that are the same for every vendor: facts in, a result and a sentence that says what to do out."""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.agent.validator.kernel import KernelResult
from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts
from gpu_control_plane.agent.vendors.interface import DRIVER_STEP, CheckOutcome, failed, passed, some
from gpu_control_plane.api.gpunodestate import StepResult

DRIVER: Final = DRIVER_STEP
TOOLKIT: Final = "toolkit"
PLUGIN: Final = "plugin"


def check_toolkit(facts: ToolkitFacts) -> CheckOutcome:
    """Containers can get a card: through our CDI spec, or from a runtime that is known to work."""
    outcome = _check_injection(facts)
    if facts.not_configured is None:
        return outcome
    why = facts.not_configured.rstrip(".")
    return CheckOutcome(
        outcome.result, f"{outcome.message} The agent could not configure the container runtime: {why}."
    )


def _check_injection(facts: ToolkitFacts) -> CheckOutcome:
    broken = {name: missing for name, missing in facts.devices.items() if missing}
    unresolved = _unresolved(facts)
    if facts.missing_handler is not None:
        return failed(
            f"The container runtime has no handler {facts.missing_handler}, by which containers are to be given cards. "
            "Install the vendor's container toolkit, or choose another injection."
        )
    if facts.devices and not broken and unresolved is None:
        return passed("Every device of the CDI specification can be resolved.")
    if facts.runtime is not None:
        return passed(f"Containers are given cards by {facts.runtime}.")
    return failed(unresolved if facts.devices and not broken and unresolved else _no_spec(facts, broken))


def _unresolved(facts: ToolkitFacts) -> str | None:
    """Why the container runtime resolves no name of the CDI spec."""
    if facts.cdi_enabled is False:
        return (
            "The container runtime does not resolve CDI names. Switch enable_cdi on in its configuration and name "
            "folders in cdi_spec_dirs, as `python -m gpu_control_plane.agent.runtimes set` does, and restart it."
        )
    if facts.unread_folder is not None:
        return (
            f"The container runtime does not look for CDI specifications in {facts.unread_folder}. Add it to "
            "cdi_spec_dirs in its configuration, and restart it."
        )
    return None


def _no_spec(facts: ToolkitFacts, broken: Mapping[str, tuple[str, ...]]) -> str:
    if facts.damaged is not None:
        return f"The CDI specification cannot be read ({facts.damaged}). Remove it: the agent writes another."
    if not broken:
        return "There is no CDI specification and no GPU runtime. See the agent's log for why it wrote none."
    device, missing = next(iter(sorted(broken.items())))
    return (
        f"{len(broken)} of {len(facts.devices)} CDI devices name files that do not exist, such as {device}: "
        f"{some(missing)}. Restart the agent; reinstall the driver if that does not help."
    )


def check_kernel(
    results: Mapping[str, KernelResult], untested: Mapping[str, str], before: CheckOutcome | None
) -> CheckOutcome:
    """A kernel ran on every card that could be tested. `untested` says why the other cards were not.

    If none could be tested, the outcome `before` stays.
    """
    wrong = {card: result for card, result in results.items() if not result.ok}
    simulated = "Simulated, no kernel ran: " if any(result.simulated for result in results.values()) else ""
    if wrong:
        card, result = next(iter(sorted(wrong.items())))
        others = f" So did {some(sorted(wrong)[1:])}." if len(wrong) > 1 else ""
        return failed(f"{simulated}{card} failed: {result.message}{others}")
    left = f" Not tested: {some(f'{card} ({why})' for card, why in sorted(untested.items()))}." if untested else ""
    if results:
        return passed(f"{simulated}A kernel gave the right result on {some(sorted(results))}.{left}")
    if before is not None and before.result in (StepResult.PASSED, StepResult.FAILED):
        return before
    return CheckOutcome(StepResult.RUNNING, f"No card could be tested yet; it is done once one is free.{left}")


def check_plugin(facts: PluginFacts) -> CheckOutcome:
    """The kubelet may allocate units of every resource that is ordered."""
    absent = sorted(name for name in facts.ordered if not facts.allocatable.get(name))
    if absent:
        return failed(
            f"The kubelet has nothing to hand out of {some(absent)}. Look at the health of the cards behind it, and "
            "at the agent's log for its registration with the kubelet."
        )
    return passed("The kubelet lists every resource ordered." if facts.ordered else "Nothing is ordered of this node.")
