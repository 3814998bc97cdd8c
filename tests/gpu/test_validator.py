"""The node's software was checked on the card itself, and other operands can see that it was."""

from blocking_wait import until
from gpu.card_env import CardEnv
from gpu.record import Record
from gpu.smi import SEARCH
from gpu_control_plane.agent.validator.kernel import VendorKernel
from gpu_control_plane.agent.vendors.nvidia.support import SUPPORT

_STEPS = ("driver", "toolkit", "cuda")


def test_driver_toolkit_and_a_real_kernel_passed(env: CardEnv, record: Record) -> None:
    until(lambda: {*_results(env).values()} == {"Passed"})
    steps = {step["name"]: step for step in env.state()["status"]["validation"]["steps"]}
    for name in _STEPS:
        record.compare(f"validator: {name}", steps[name]["result"], steps[name].get("message", ""))


def test_status_files_say_so(env: CardEnv) -> None:
    until(lambda: {f"{name}-ready" for name in _STEPS} <= {path.name for path in env.validations.iterdir()})
    assert "IS_HOST_DRIVER=true" in (env.validations / "driver-ready").read_text()


def _results(env: CardEnv) -> dict[str, str]:
    steps = env.state()["status"].get("validation", {}).get("steps", [])
    return {name: next((step["result"] for step in steps if step["name"] == name), "absent") for name in _STEPS}


async def test_the_kernel_itself_runs_on_this_card(env: CardEnv, record: Record) -> None:
    run = VendorKernel(lambda: SUPPORT.kernel_command(SEARCH))
    with record.timed("kernel check on the host, whole process"):
        proof = await run(env.uuid_of_card)
    assert (proof.ok, proof.simulated) == (True, False), proof
