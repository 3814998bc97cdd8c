"""A card stays with its pod for as long as the pod's containers run, whatever the kubelet remembers of them."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, settle
from gpu_control_plane.agent.exporter.processes import pod_of
from gpu_control_plane.agent.kubelet.checkpoint import FILE_NAME
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.local.images import BUSYBOX
from unit.agent.step.builders import exclusive

TRAINING = f"{PREFIX}/training"
SERVING = f"{PREFIX}/serving"
IGNORES_TERM = ("sh", "-c", "trap '' TERM; while true; do sleep 1; done")
FREE_SECONDS = 5.0


@pytest.fixture(autouse=True)
def emptied(env: AgentEnv) -> None:
    """Every test begins with a node that offers nothing."""
    env.cluster_env.kubectl("delete", "pods", "--all", "--wait")
    env.order()
    until(lambda: not env.state()["status"].get("plugin", {}).get("resources"))


def processes(uid: str) -> list[int]:
    """The processes of a pod, by their control groups."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [pid for pid in pids if pod_of(pid) == uid]


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a command of the shell among them ends by itself
            os.kill(pid, signal.SIGKILL)


def uid_of(env: AgentEnv, pod: str) -> str:
    uid: str = env.cluster_env.pod(pod)["metadata"]["uid"]
    return uid


def phase(env: AgentEnv, pod: str) -> str:
    found: str = env.cluster_env.pod(pod)["status"]["phase"]
    return found


def delete_by_force(env: AgentEnv, pod: str) -> None:
    """Once the kubelet waits for a pod to end, it waits for as long as the pod may take, and no forced deletion
    shortens that."""
    env.cluster_env.kubectl("delete", "pod", pod, "--wait=false")
    events = ("get", "events", "--field-selector", f"reason=Killing,involvedObject.name={pod}", "-o", "name")
    until(lambda: env.cluster_env.kubectl(*events))
    env.cluster_env.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")


def healthy(env: AgentEnv, resource: str) -> int:
    """How many units the kubelet was told are healthy."""
    offered = env.state()["status"].get("plugin", {}).get("resources", [])
    return sum(each["healthy"] for each in offered if each["name"] == resource)


def test_a_pod_deleted_by_force_keeps_its_card_until_its_containers_end(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING))
    env.wait_offered(TRAINING, 1)
    env.cluster_env.run_pod("stubborn", IGNORES_TERM, limits={TRAINING: 1}, terminationGracePeriodSeconds=600)
    uid = uid_of(env, "stubborn")
    delete_by_force(env, "stubborn")
    # Bound without the scheduler, so before anybody can know better: the kubelet asks for the card.
    env.cluster_env.create_pod("hasty", limits={TRAINING: 1}, node=env.node.name)
    env.wait_offered(TRAINING, 0)
    until(lambda: phase(env, "hasty") == "Failed")
    assert processes(uid), "the containers run on"
    settle(
        2
    )  # The scheduler, too, sees that nothing is allocatable: what it binds before fails, as docs/agent.md says.
    env.cluster_env.create_pod("next", limits={TRAINING: 1})
    env.stop_agent(signal.SIGKILL)
    env.start_agent()
    until(lambda: healthy(env, TRAINING) == 0 and env.listening(TRAINING), within=90)
    settle(3)
    assert phase(env, "next") == "Pending", "it waits, also after a restart of the agent"
    assert processes(uid)
    kill(processes(uid))
    until(lambda: not processes(uid))
    ended = time.monotonic()
    until(lambda: healthy(env, TRAINING) == 1)
    assert time.monotonic() - ended < FREE_SECONDS
    until(lambda: phase(env, "next") == "Running", within=90)
    assert env.cards_in("next") == ["nvidia0"]


def test_after_a_plain_forced_deletion_the_next_pod_waits_in_allocate(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING))
    env.wait_offered(TRAINING, 1)
    env.cluster_env.run_pod("first", limits={TRAINING: 1})
    uid = uid_of(env, "first")
    env.cluster_env.kubectl("delete", "pod", "first", "--force", "--grace-period=0", "--wait=false")
    env.cluster_env.run_pod("second", limits={TRAINING: 1}, node=env.node.name)
    assert not processes(uid), "the card was given when the first pod had ended"
    assert env.cards_in("second") == ["nvidia0"]


def test_a_lost_checkpoint_frees_no_busy_card(env: AgentEnv) -> None:
    env.install(new_machine("H200-141", 8))
    cards = range(8)
    until(lambda: len(env.cluster_env.read(GPUDevice.resource.path())["items"]) == len(cards), within=90)
    env.order(*(exclusive(env.card(card), TRAINING) for card in cards))
    env.wait_offered(TRAINING, 8)
    busy = [f"busy-{number}" for number in cards]
    for pod in busy:
        env.cluster_env.create_pod(pod, limits={TRAINING: 1})
    until(lambda: all(phase(env, pod) == "Running" for pod in busy), within=150)
    before = {pod: env.cards_in(pod) for pod in busy}
    until(lambda: all(len(env.users(card)) == 1 for card in cards))
    registered = env.registrations()
    (env.node.device_plugins / FILE_NAME).unlink()
    env.node.kubelet.restart(signal.SIGKILL)
    hasty = [f"hasty-{number}" for number in cards]
    for pod in hasty:
        env.cluster_env.create_pod(pod, limits={TRAINING: 1}, node=env.node.name)
    until(lambda: env.registrations() > registered)
    until(lambda: all(phase(env, pod) == "Failed" for pod in hasty), within=150)
    assert {pod: env.cards_in(pod) for pod in busy} == before
    assert all(env.cluster_env.container(pod)["restartCount"] == 0 for pod in busy)
    env.cluster_env.kubectl("delete", "pods", "--all", "--wait")
    env.wait_offered(TRAINING, 8)
    env.order()
    env.install(new_machine("H200-141", 2))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "loss" in metafunc.fixturenames:
        metafunc.parametrize("loss", range(metafunc.config.getoption("--sandbox-losses")))


def test_an_init_container_that_runs_again_still_has_its_card(env: AgentEnv, loss: int) -> None:
    loading = {
        "name": "load",
        "image": BUSYBOX,
        "command": ["sh", "-c", "ls /dev | grep -E '^nvidia[0-9]+$'"],
        "resources": {"limits": {TRAINING: 1}},
    }
    env.order(exclusive(env.card(0), TRAINING))
    env.wait_offered(TRAINING, 1)
    loader, eager = f"loader-{loss}", f"eager-{loss}"
    env.cluster_env.run_pod(loader, initContainers=[loading])
    first = init_container(env, loader)
    env.order(exclusive(env.card(0), SERVING))
    env.cluster_env.create_pod(eager, limits={SERVING: 1})
    kill(processes(uid_of(env, loader)))  # and the sandbox with them
    until(lambda: init_container(env, loader) not in {first, None}, within=90)
    assert env.cluster_env.kubectl("logs", loader, "-c", "load").split() == ["nvidia0"]
    assert phase(env, eager) == "Pending", "the card has not moved on"
    env.cluster_env.delete_pod(loader)
    until(lambda: phase(env, eager) == "Running", within=90)
    assert env.cards_in(eager) == ["nvidia0"]


def init_container(env: AgentEnv, pod: str) -> str | None:
    """The ID of the init container that ran last, once it has ended well."""
    status = env.cluster_env.pod(pod)["status"]["initContainerStatuses"][0]
    ended = status.get("state", {}).get("terminated", {})
    return ended.get("containerID") if ended.get("exitCode") == 0 else None
