"""A pod gets the card through the pool, our device plugin and our CDI file, and computes on it. No other pod does."""

import json
import signal
from collections.abc import Iterator

import pytest

from blocking_wait import until
from e2e.agent.agent_env import settle
from gpu.card_env import POOL, RESOURCE, CardEnv
from gpu.readings import agree, scrape
from gpu.record import Record
from gpu.smi import Smi
from gpu_control_plane.agent.backends.measures import Measure

_WORKER, _SECOND, _PLAIN = "worker", "second", "plain"


@pytest.fixture(scope="module", autouse=True)
def worker(pooled: CardEnv, record: Record) -> Iterator[None]:
    """A pod that works on the card."""
    with record.timed("pod created to Running"):
        pooled.create_worker(_WORKER)
        until(lambda: pooled.cluster_env.pod(_WORKER)["status"]["phase"] != "Pending", within=60)
    yield
    pooled.cluster_env.kubectl("delete", "pods", "--all", "--wait")


def test_the_kernel_ran_inside_the_container(env: CardEnv, smi: Smi, record: Record) -> None:
    with record.timed("pod Running to kernels running"):
        until(lambda: "working" in env.printed(_WORKER), within=60)
    answer = json.loads(env.printed(_WORKER).splitlines()[0])
    record.measure("in the pod: context on the card", answer["contextSeconds"])
    record.measure("in the pod: launch and kernel", answer["kernelSeconds"] * 1e6, "µs")
    record.compare("in the pod: the card's name", answer["name"], smi.query("name")["name"])
    assert answer["ok"], answer
    assert answer["card"] == env.uuid_of_card


def test_the_kubelet_had_its_answer_at_once(env: CardEnv, record: Record) -> None:
    seconds = env.mean("gpu_agent_plugin_allocate_seconds")
    record.measure("Allocate, as the agent sees it", seconds * 1000, "ms")
    assert seconds < 0.1


def test_the_container_sees_its_card_and_the_driver(env: CardEnv, smi: Smi) -> None:
    assert env.uuid_of_card in env.cluster_env.exec(_WORKER, "/usr/bin/nvidia-smi", "-L")
    minor = smi.query("index")["index"]
    python = env.cluster_env.pod(_WORKER)["spec"]["containers"][0]["command"][0]
    listing = env.cluster_env.exec(_WORKER, python, "-c", "import os; print(*sorted(os.listdir('/dev')))").split()
    assert f"nvidia{minor}" in listing
    assert {"nvidiactl", "nvidia-uvm"} <= {*listing}


def test_the_card_is_shown_as_assigned_and_used(env: CardEnv) -> None:
    until(lambda: env.users_of_card() == [_WORKER])
    status = env.published()["status"]
    assert (status["state"], status["poolRef"]["name"]) == ("Assigned", POOL)
    pool = json.loads(env.cluster_env.kubectl("get", "gpupool", POOL, "-o", "json"))
    assert pool["status"]["phase"] == "Ready"


def test_a_second_pod_waits(env: CardEnv) -> None:
    env.create_worker(_SECOND)
    settle(3)
    status = env.cluster_env.pod(_SECOND)["status"]
    assert status["phase"] == "Pending"
    assert f"Insufficient {RESOURCE}" in json.dumps(status["conditions"])
    env.cluster_env.delete_pod(_SECOND)


def test_a_pod_that_asks_for_nothing_sees_nothing(env: CardEnv) -> None:
    env.cluster_env.run_pod(_PLAIN)
    assert "nvidia" not in env.cluster_env.exec(_PLAIN, "ls", "-R", "/dev")
    assert "nvidia" not in env.cluster_env.exec(_PLAIN, "cat", "/proc/mounts")
    env.cluster_env.delete_pod(_PLAIN)


def test_a_busy_card_measures_what_nvidia_smi_says_and_names_its_pod(env: CardEnv, smi: Smi, record: Record) -> None:
    until(lambda: len(smi.processes()) == 1)
    scrape(env.port)
    settle(1)  # Profiling is about the time between two scrapes, which should be busy from end to end.
    samples = agree(env.port, smi, record, "busy")
    labels = samples[Measure.GPU_UTIL].labels
    assert (labels["namespace"], labels["pod"], labels["container"]) == ("default", _WORKER, "main")
    assert samples[Measure.GPU_UTIL].value > 50
    assert samples[Measure.FB_USED].value > 2048
    assert 0.8 < samples[Measure.GR_ENGINE_ACTIVE].value <= 1.01
    assert samples[Measure.DRAM_ACTIVE].value > 0.5
    for name in (Measure.GR_ENGINE_ACTIVE, Measure.SM_ACTIVE, Measure.SM_OCCUPANCY, Measure.DRAM_ACTIVE):
        record.measure(f"{name}, busy", samples[name].value, "of 1")


def test_a_killed_agent_disturbs_no_pod(env: CardEnv, smi: Smi) -> None:
    before = smi.processes()
    env.stop_agent(signal.SIGKILL)
    env.wait_offered(RESOURCE, 0)
    env.start_agent()
    env.wait_offered(RESOURCE, 1)
    until(lambda: env.users_of_card() == [_WORKER])
    assert smi.processes() == before
    assert env.cluster_env.container(_WORKER)["restartCount"] == 0


def test_the_card_is_free_when_its_pod_is_gone(env: CardEnv, smi: Smi, record: Record) -> None:
    with record.timed("pod told to end, card free"):
        env.cluster_env.delete_pod(_WORKER)
        until(lambda: env.users_of_card() == [])
    assert smi.processes() == []


@pytest.mark.parametrize("injection", ["Kubelet", "CDI"])
def test_the_next_pod_computes_as_well_however_it_is_given_the_card(env: CardEnv, smi: Smi, injection: str) -> None:
    env.stop_agent()
    env.wait_offered(RESOURCE, 0)
    env.start_agent("--injection", injection)
    env.wait_offered(RESOURCE, 1)
    env.create_worker(_SECOND)
    until(lambda: "working" in env.printed(_SECOND), within=60)
    assert json.loads(env.printed(_SECOND).splitlines()[0])["ok"]
    assert smi.processes() != []
    env.cluster_env.delete_pod(_SECOND)
    until(lambda: env.users_of_card() == [])
    assert smi.processes() == []
