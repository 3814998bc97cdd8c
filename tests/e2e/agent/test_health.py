"""A faulted card is not allocated, and stays with the pod that has it; the driver is released on request."""

from pathlib import Path

import pytest

from blocking_wait import until
from e2e.agent.scene import PREFIX, AgentScene, settle
from gpu_control_plane.agent.simulated.machine import heal, report_xid
from unit.agent.step.builders import exclusive

TRAINING = f"{PREFIX}/training"
PAUSE = "nvidia.com/gpu.deploy.device-plugin"


@pytest.fixture(autouse=True, scope="module")
def ordered(scene: AgentScene) -> None:
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("steady", limits={TRAINING: 2})


def healthy(scene: AgentScene, index: int) -> tuple[str, str]:
    conditions = scene.device(index).get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Healthy"), ("", ""))


def test_a_broken_card_leaves_allocatable_and_stays_with_its_pod(scene: AgentScene) -> None:
    scene.install(report_xid(scene.machine, scene.machine.addresses[0], 79))
    scene.wait_offered(TRAINING, 1)
    until(lambda: healthy(scene, 0) == ("False", "XID79"))
    assert scene.cards_in("steady") == ["nvidia0", "nvidia1"]
    assert scene.stage.container("steady")["restartCount"] == 0


def test_an_error_of_a_program_is_not_held_against_the_card(scene: AgentScene) -> None:
    scene.install(report_xid(scene.machine, scene.machine.addresses[1], 31))
    until(lambda: scene.last_xid(1) == 31)
    assert healthy(scene, 1)[0] == "True"
    assert scene.allocatable(TRAINING) == 1


def test_a_repaired_card_returns_when_a_person_says_so(scene: AgentScene) -> None:
    scene.install(heal(scene.machine, scene.machine.addresses[0]))
    settle(2)
    assert scene.allocatable(TRAINING) == 1, "it is watched for a while first"
    scene.stage.kubectl("annotate", "gpudevice", scene.card(0), "gpu.deckhouse.io/clear-fault=checked")
    scene.wait_offered(TRAINING, 2)
    until(lambda: healthy(scene, 0)[0] == "True")
    until(lambda: "gpu.deckhouse.io/clear-fault" not in scene.device(0)["metadata"].get("annotations", {}))


def test_the_driver_is_let_go_of_and_taken_up_again(scene: AgentScene) -> None:
    assert scene.agent is not None
    scene.stage.kubectl("label", "node", scene.node.name, f"{PAUSE}=paused-for-driver-upgrade")
    until(lambda: "quiesced" in scene.state()["status"])
    assert scene.state()["status"]["quiesced"]["reason"] == "paused-for-driver-upgrade"
    paused = scene.state()["status"]["quiesced"]["since"]
    scene.wait_offered(TRAINING, 0)
    assert open_devices(scene.agent.pid, scene.devices) == []
    assert scene.cards_in("steady") == ["nvidia0", "nvidia1"]
    settle(1)  # times are told in whole seconds
    scene.stage.kubectl("label", "node", scene.node.name, f"{PAUSE}-")
    until(lambda: "quiesced" not in scene.state()["status"])
    scene.wait_offered(TRAINING, 2)
    until(lambda: checked_at(scene, "driver") > paused)  # an upgrade waits for this


def test_another_device_plugin_on_the_node_stops_issuing(scene: AgentScene) -> None:
    patch = '{"status":{"capacity":{"nvidia.com/gpu":"2"},"allocatable":{"nvidia.com/gpu":"2"}}}'
    scene.stage.kubectl("patch", "node", scene.node.name, "--subresource=status", "--type=merge", "--patch", patch)
    until(lambda: scene.state()["status"]["plugin"].get("conflicts") == ["nvidia.com/gpu"])
    scene.wait_offered(TRAINING, 0)
    until(lambda: conditions_of(scene).get("Degraded") == "ConflictingDevicePlugin")
    assert scene.cards_in("steady") == ["nvidia0", "nvidia1"]


def checked_at(scene: AgentScene, step: str) -> str:
    steps = scene.state()["status"]["validation"]["steps"]
    return str(next(held["at"] for held in steps if held["name"] == step))


def conditions_of(scene: AgentScene) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in scene.state()["status"]["conditions"]}


def open_devices(pid: int, folder: Path) -> list[str]:
    """The device files that a process holds open."""
    targets = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    return [target for target in targets if target.startswith((str(folder), "/dev/nvidia"))]
