"""The node's software was checked on the card itself, and other operands can see that it was."""

from blocking_wait import until
from gpu.record import Record
from gpu.scene import CardScene
from gpu.smi import SEARCH
from gpu_control_plane.agent.validator.kernel import VendorKernel
from gpu_control_plane.agent.vendors.nvidia.support import SUPPORT

_STEPS = ("driver", "toolkit", "cuda")


def test_driver_toolkit_and_a_real_kernel_passed(scene: CardScene, record: Record) -> None:
    until(lambda: {*_results(scene).values()} == {"Passed"})
    steps = {step["name"]: step for step in scene.state()["status"]["validation"]["steps"]}
    for name in _STEPS:
        record.compare(f"validator: {name}", steps[name]["result"], steps[name].get("message", ""))


def test_status_files_say_so(scene: CardScene) -> None:
    until(lambda: {f"{name}-ready" for name in _STEPS} <= {path.name for path in scene.validations.iterdir()})
    assert "IS_HOST_DRIVER=true" in (scene.validations / "driver-ready").read_text()


def _results(scene: CardScene) -> dict[str, str]:
    steps = scene.state()["status"].get("validation", {}).get("steps", [])
    return {name: next((step["result"] for step in steps if step["name"] == name), "absent") for name in _STEPS}


async def test_the_kernel_itself_runs_on_this_card(scene: CardScene, record: Record) -> None:
    run = VendorKernel(lambda: SUPPORT.kernel_command(SEARCH))
    with record.timed("kernel check on the host, whole process"):
        proof = await run(scene.uuid_of_card)
    assert (proof.ok, proof.simulated) == (True, False), proof
