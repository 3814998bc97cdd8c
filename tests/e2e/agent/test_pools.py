"""The whole way: a person approves a card, the pool orders it, the node offers it, a pod has it."""

from collections.abc import Iterator

import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, agent_env_on, settle
from e2e.cluster_env import ClusterEnv

TRAINING, SERVING = f"{PREFIX}/training", f"{PREFIX}/serving"
UNPOOLED = "nvidia.com/gpu"
POOL = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: %s}
spec: {}
"""


@pytest.fixture(scope="module")
def env(cluster_env: ClusterEnv) -> Iterator[AgentEnv]:
    with agent_env_on(cluster_env, agent=("--labels", "--unpooled", UNPOOLED)) as env:
        for pool in ("training", "serving"):
            cluster_env.kubectl("create", "-f", "-", given=POOL % pool)
        yield env


def approve(env: AgentEnv, index: int, pool: str | None) -> None:
    change = f"gpu.deckhouse.io/assignment={pool}" if pool else "gpu.deckhouse.io/assignment-"
    env.cluster_env.kubectl("annotate", "gpudevice", env.card(index), change)


def state_of(env: AgentEnv, index: int) -> str:
    state: str = env.device(index)["status"].get("state", "")
    return state


def test_cards_in_no_pool_are_offered_under_the_familiar_name(env: AgentEnv) -> None:
    env.wait_offered(UNPOOLED, 2)
    conflicts = env.state()["status"].get("plugin", {}).get("conflicts")
    assert conflicts is None, "our own resource is no rival"


def test_the_node_carries_the_familiar_labels(env: AgentEnv) -> None:
    until(lambda: "nvidia.com/gpu.product" in env.cluster_env.node_object()["metadata"]["labels"])
    labels = env.cluster_env.node_object()["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.159.04"


def test_an_approved_card_reaches_a_pod(env: AgentEnv) -> None:
    approve(env, 0, "training")
    env.wait_offered(TRAINING, 1)
    env.wait_offered(UNPOOLED, 1)
    env.cluster_env.run_pod("trainer", limits={TRAINING: 1})
    assert env.cards_in("trainer") == ["nvidia0"]
    until(lambda: env.users(0) == ["trainer"])
    until(lambda: state_of(env, 0) == "Assigned")


def test_a_card_in_use_changes_pools_only_when_its_pod_ends(env: AgentEnv) -> None:
    approve(env, 0, None)
    env.wait_offered(TRAINING, 0)
    settle(2)
    assert state_of(env, 0) == "Draining"
    assert env.cards_in("trainer") == ["nvidia0"]
    env.cluster_env.delete_pod("trainer")
    until(lambda: state_of(env, 0) == "Unassigned", within=90)
    approve(env, 0, "serving")
    env.wait_offered(SERVING, 1)
    env.cluster_env.run_pod("server", limits={SERVING: 1})
    assert env.cards_in("server") == ["nvidia0"]


def test_a_pod_promised_a_card_that_has_left_fails_and_is_counted(env: AgentEnv) -> None:
    counted = env.admission_errors()
    env.cluster_env.create_pod("late", limits={TRAINING: 1}, node=env.node.name)
    until(lambda: env.cluster_env.pod("late")["status"]["phase"] == "Failed")
    assert env.cluster_env.pod("late")["status"]["reason"] == "UnexpectedAdmissionError"
    until(lambda: env.admission_errors() == counted + 1)


def test_the_cards_metrics_name_the_pod(env: AgentEnv) -> None:
    until(lambda: 'pod="server"' in env.metrics())
    line = next(line for line in env.metrics().splitlines() if "DCGM_FI_DEV_GPU_TEMP{" in line and "server" in line)
    assert f'UUID="{env.uuid(0)}"' in line
    assert 'namespace="default"' in line
    assert 'container="main"' in line


def test_a_quiet_node_writes_nothing(env: AgentEnv) -> None:
    def quiet() -> bool:
        before = env.writes()
        settle(20)  # More than one look at the hardware.
        return env.writes() == before

    # The next look finds the card busy, which is told once; so is how often an Event was told, half a minute later.
    assert any(quiet() for _ in range(4))
