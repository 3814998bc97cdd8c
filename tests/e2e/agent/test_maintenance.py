"""Exclusive → MIG → TimeSlice on a real kubelet: no running pod is touched, and nothing of before stays behind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, agent_env_on
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.api.gpupool import GPUPool

TRAINING = f"{PREFIX}/training"
POOL = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: training}
spec: {assignment: {requireAnnotation: false}}
"""
INSTANCES = {"mode": "MIG", "mig": {"profile": "1g.18gb"}, "timeSlice": None}
SLICES = {"mode": "TimeSlice", "timeSlice": {"replicas": 4}, "mig": None}


@pytest.fixture(scope="module")
def env(cluster_env: ClusterEnv) -> Iterator[AgentEnv]:
    with agent_env_on(cluster_env) as env:
        cluster_env.kubectl("create", "-f", "-", given=POOL)
        yield env


def pool(env: AgentEnv) -> dict[str, Any]:
    status: dict[str, Any] = env.cluster_env.read(GPUPool.resource.path(name="training")).get("status", {})
    return status


def change(env: AgentEnv, allocation: Mapping[str, object]) -> None:
    """Change the mode while a pod runs, and bind another pod before the node has heard of it: that one is refused."""
    counted = env.admission_errors()
    patch = json.dumps({"spec": {"allocation": allocation}})
    env.cluster_env.kubectl("patch", "gpupool", "training", "--type=merge", "--patch", patch)
    until(lambda: pool(env)["phase"] == "Maintenance")
    env.wait_offered(TRAINING, 0)
    env.cluster_env.create_pod("late", limits={TRAINING: 1}, node=env.node.name)
    until(lambda: env.cluster_env.pod("late")["status"]["phase"] == "Failed")
    assert env.cluster_env.pod("late")["status"]["reason"] == "UnexpectedAdmissionError"
    until(lambda: env.admission_errors() == counted + 1)
    env.cluster_env.delete_pod("late")


def finish(env: AgentEnv, pod: str, units: int) -> None:
    """The pod was not touched; when it ends, the cards are divided anew."""
    assert env.cluster_env.container(pod)["restartCount"] == 0
    assert pool(env)["maintenance"]["unitsInUse"] == 1
    env.cluster_env.delete_pod(pod)
    env.wait_offered(TRAINING, units, within=180)
    until(lambda: pool(env)["phase"] == "Ready", within=90)
    (offered,) = env.state()["status"]["plugin"]["resources"]
    assert (offered["name"], offered["units"], offered["healthy"]) == (TRAINING, units, units)


@pytest.mark.timeout(600)
def test_whole_cards_become_instances_and_then_slices(env: AgentEnv) -> None:
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("whole", limits={TRAINING: 1})
    until(lambda: env.users(0) + env.users(1) == ["whole"])
    change(env, INSTANCES)
    assert len(env.cards_in("whole")) == 1
    finish(env, "whole", 14)

    env.cluster_env.run_pod("instance", limits={TRAINING: 1})
    gate = set(env.cluster_env.exec("instance", "ls", "/dev/nvidia-caps").split())
    assert len(gate) == 2, "one for the GPU instance, one for its compute instance"
    until(lambda: env.users(0) + env.users(1) == ["instance"])
    change(env, SLICES)
    assert set(env.cluster_env.exec("instance", "ls", "/dev/nvidia-caps").split()) == gate
    finish(env, "instance", 8)

    env.cluster_env.run_pod("slice", limits={TRAINING: 1})
    assert len(env.cards_in("slice")) == 1
    assert [change["what"] for change in env.device(0)["status"]["history"]][:2] == [
        "Divided as TimeSlice 4",
        "Divided as MIG 1g.18gb",
    ]
