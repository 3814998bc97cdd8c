"""A faulted card is not allocated, and stays with the pod that has it; the driver is released on request."""

from pathlib import Path

import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, settle
from gpu_control_plane.agent.simulated.machine import heal, report_xid
from unit.agent.step.builders import exclusive

TRAINING = f"{PREFIX}/training"
PAUSE = "nvidia.com/gpu.deploy.device-plugin"


@pytest.fixture(autouse=True, scope="module")
def ordered(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("steady", limits={TRAINING: 2})


def healthy(env: AgentEnv, index: int) -> tuple[str, str]:
    conditions = env.device(index).get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Healthy"), ("", ""))


def test_a_broken_card_leaves_allocatable_and_stays_with_its_pod(env: AgentEnv) -> None:
    env.install(report_xid(env.machine, env.machine.addresses[0], 79))
    env.wait_offered(TRAINING, 1)
    until(lambda: healthy(env, 0) == ("False", "XID79"))
    assert env.cards_in("steady") == ["nvidia0", "nvidia1"]
    assert env.cluster_env.container("steady")["restartCount"] == 0


def test_an_error_of_a_program_is_not_held_against_the_card(env: AgentEnv) -> None:
    env.install(report_xid(env.machine, env.machine.addresses[1], 31))
    until(lambda: env.last_xid(1) == 31)
    assert healthy(env, 1)[0] == "True"
    assert env.allocatable(TRAINING) == 1


def test_a_repaired_card_returns_when_a_person_says_so(env: AgentEnv) -> None:
    env.install(heal(env.machine, env.machine.addresses[0]))
    settle(2)
    assert env.allocatable(TRAINING) == 1, "it is watched for a while first"
    env.cluster_env.kubectl("annotate", "gpudevice", env.card(0), "gpu.deckhouse.io/clear-fault=checked")
    env.wait_offered(TRAINING, 2)
    until(lambda: healthy(env, 0)[0] == "True")
    until(lambda: "gpu.deckhouse.io/clear-fault" not in env.device(0)["metadata"].get("annotations", {}))


def test_the_driver_is_let_go_of_and_taken_up_again(env: AgentEnv) -> None:
    assert env.agent is not None
    env.cluster_env.kubectl("label", "node", env.node.name, f"{PAUSE}=paused-for-driver-upgrade")
    until(lambda: "quiesced" in env.state()["status"])
    assert env.state()["status"]["quiesced"]["reason"] == "paused-for-driver-upgrade"
    paused = env.state()["status"]["quiesced"]["since"]
    env.wait_offered(TRAINING, 0)
    assert open_devices(env.agent.pid, env.devices) == []
    assert env.cards_in("steady") == ["nvidia0", "nvidia1"]
    settle(1)  # times are told in whole seconds
    env.cluster_env.kubectl("label", "node", env.node.name, f"{PAUSE}-")
    until(lambda: "quiesced" not in env.state()["status"])
    env.wait_offered(TRAINING, 2)
    until(lambda: checked_at(env, "driver") > paused)  # an upgrade waits for this


def test_another_device_plugin_on_the_node_stops_issuing(env: AgentEnv) -> None:
    patch = '{"status":{"capacity":{"nvidia.com/gpu":"2"},"allocatable":{"nvidia.com/gpu":"2"}}}'
    env.cluster_env.kubectl("patch", "node", env.node.name, "--subresource=status", "--type=merge", "--patch", patch)
    until(lambda: env.state()["status"]["plugin"].get("conflicts") == ["nvidia.com/gpu"])
    env.wait_offered(TRAINING, 0)
    until(lambda: conditions_of(env).get("Degraded") == "ConflictingDevicePlugin")
    assert env.cards_in("steady") == ["nvidia0", "nvidia1"]


def checked_at(env: AgentEnv, step: str) -> str:
    steps = env.state()["status"]["validation"]["steps"]
    return str(next(held["at"] for held in steps if held["name"] == step))


def conditions_of(env: AgentEnv) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in env.state()["status"]["conditions"]}


def open_devices(pid: int, folder: Path) -> list[str]:
    """The device files that a process holds open."""
    targets = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    return [target for target in targets if target.startswith((str(folder), "/dev/nvidia"))]
