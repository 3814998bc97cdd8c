"""The checks themselves: facts in, a result and a sentence that says what to do out.

Sentences hold nothing that differs from one run to the next, such as times: a status is written when it changes.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.agent.validator.observe import DriverFacts, PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.runner import Proof
from gpu_control_plane.api.gpunodestate import StepResult

_NAMED: Final = 4


class Step(enum.StrEnum):
    """The checks, in their order."""

    DRIVER = "driver"
    TOOLKIT = "toolkit"
    CUDA = "cuda"
    PLUGIN = "plugin"
    NVIDIA_FS = "nvidia-fs"
    GDRCOPY = "gdrcopy"


class Outcome(msgspec.Struct, frozen=True):
    """How a check ended."""

    result: StepResult
    message: str


def passed(message: str) -> Outcome:
    return Outcome(StepResult.PASSED, message)


def failed(message: str) -> Outcome:
    return Outcome(StepResult.FAILED, message)


def check_driver(facts: DriverFacts) -> Outcome:
    """The module is loaded, its library has the same version, and everything that programs open is there."""
    module, library = facts.module, facts.library_version
    if module is None:
        return failed("The kernel module nvidia is not loaded. Install the driver, or load it with modprobe nvidia.")
    if library is not None and library != module:
        return failed(
            f"The kernel module is {module} but the driver's libraries are {library}: the driver was upgraded without "
            "a reload. Drain the node and reload the module, or restart the node."
        )
    if facts.refused is not None:
        refused = facts.refused.rstrip(".")
        return failed(f"The driver does not answer: {refused}. Look into the node's kernel log; reload the driver.")
    if facts.missing_files:
        return failed(
            f"Device files are missing: {_some(facts.missing_files)}. Run nvidia-modprobe -u -c=0 on the node."
        )
    if facts.library is None:
        return failed(
            "libcuda.so.1 is not on the node. Install the driver's compute libraries, or set its root folder."
        )
    return passed(f"Driver {module} is loaded and answers.")


def check_toolkit(facts: ToolkitFacts) -> Outcome:
    """Containers can be given a card: by our CDI specification, or by a runtime that was seen to work."""
    broken = {name: missing for name, missing in facts.devices.items() if missing}
    if facts.devices and not broken and facts.cdi_enabled is not False:
        return passed("Every device of the CDI specification can be resolved.")
    if facts.runtime is not None:
        return passed(f"Containers are given cards by {facts.runtime}.")
    if facts.damaged is not None:
        return failed(f"The CDI specification cannot be read ({facts.damaged}). Remove it: the agent writes another.")
    if not facts.devices:
        return failed("There is no CDI specification and no GPU runtime. See the agent's log for why it wrote none.")
    if broken:
        device, missing = next(iter(sorted(broken.items())))
        return failed(
            f"{len(broken)} of {len(facts.devices)} CDI devices name files that do not exist, such as {device}: "
            f"{_some(missing)}. Restart the agent; reinstall the driver if that does not help."
        )
    return failed("The container runtime does not resolve CDI names. Switch enable_cdi on in its configuration.")


def check_cuda(proofs: Mapping[str, Proof], untested: Mapping[str, str], before: Outcome | None) -> Outcome:
    """A kernel ran on every card that could be tested. `untested` says why for each card that was left alone.

    When every card was left alone, what was known `before` stays true.
    """
    wrong = {card: proof for card, proof in proofs.items() if not proof.ok}
    simulated = "Simulated, no kernel ran: " if any(proof.simulated for proof in proofs.values()) else ""
    if wrong:
        card, proof = next(iter(sorted(wrong.items())))
        others = f" So did {_some(sorted(wrong)[1:])}." if len(wrong) > 1 else ""
        return failed(f"{simulated}{card} failed: {proof.message}{others}")
    left = f" Not tested: {_some(f'{card} ({why})' for card, why in sorted(untested.items()))}." if untested else ""
    if proofs:
        return passed(f"{simulated}A kernel gave the right result on {_some(sorted(proofs))}.{left}")
    if before is not None and before.result in (StepResult.PASSED, StepResult.FAILED):
        return before
    return Outcome(StepResult.RUNNING, f"No card could be tested yet; it is done once one is free.{left}")


def check_plugin(facts: PluginFacts) -> Outcome:
    """The kubelet would hand out every resource that the node was ordered to offer."""
    absent = sorted(name for name in facts.ordered if not facts.allocatable.get(name))
    if absent:
        return failed(
            f"The kubelet has nothing to hand out of {_some(absent)}. Look at the health of the cards behind it, and "
            "at the agent's log for its registration with the kubelet."
        )
    return passed("The kubelet lists every resource ordered." if facts.ordered else "Nothing is ordered of this node.")


def check_module(module: str, device: str, loaded: Collection[str], *, device_exists: bool) -> Outcome:
    """A kernel module beside the driver is loaded and has made its device file."""
    if module not in loaded:
        return failed(f"The kernel module {module} is not loaded. Install it, or load it with modprobe {module}.")
    if not device_exists:
        return failed(f"The module {module} is loaded but /dev/{device} is missing. Reload the module.")
    return passed(f"The module {module} is loaded.")


def _some(names: Iterable[str]) -> str:
    """The first few of them: messages have a limit, and people too."""
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
