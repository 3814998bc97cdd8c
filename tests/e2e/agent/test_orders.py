"""Orders reach pods: whole cards, time_sliced and instances, each container with exactly its own device files."""

import json
from typing import Any

import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, settle
from unit.agent.step.builders import exclusive, partitioned, time_sliced

TRAINING = f"{PREFIX}/training"
SERVING = f"{PREFIX}/serving"
SHARED = f"{PREFIX}/shared"


@pytest.fixture(autouse=True)
def emptied(env: AgentEnv) -> None:
    """Every test begins with a node that offers nothing."""
    env.cluster_env.kubectl("delete", "pods", "--all", "--wait")
    env.order()
    until(lambda: not env.state()["status"].get("plugin", {}).get("resources"))


def offers(env: AgentEnv, name: str) -> list[dict[str, Any]]:
    """What the agent says about a resource."""
    return [each for each in env.state()["status"]["plugin"]["resources"] if each["name"] == name]


def problems(env: AgentEnv) -> list[dict[str, Any]]:
    return list(env.state()["status"].get("plugin", {}).get("problems", ()))


def test_a_pod_sees_exactly_its_card_and_the_card_says_who_has_it(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("one", limits={TRAINING: 1})
    env.cluster_env.run_pod("two", limits={TRAINING: 1})
    assert sorted(env.cards_in("one") + env.cards_in("two")) == ["nvidia0", "nvidia1"]
    until(lambda: sorted(env.users(0) + env.users(1)) == ["one", "two"])
    env.cluster_env.delete_pod("one")
    env.cluster_env.delete_pod("two")
    until(lambda: env.users(0) + env.users(1) == [])


def test_a_pod_that_asks_for_none_sees_no_card(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING))
    env.wait_offered(TRAINING, 1)
    env.cluster_env.run_pod("none")
    assert env.cards_in("none") == []


def test_without_cdi_a_pod_sees_exactly_its_card(env: AgentEnv) -> None:
    env.stop_agent()
    env.start_agent("--injection", "Kubelet")
    try:
        env.order(exclusive(env.card(1), TRAINING))
        env.wait_offered(TRAINING, 1)
        env.cluster_env.run_pod("plain", limits={TRAINING: 1})
        assert env.cards_in("plain") == ["nvidia1"]
        assert "nvidiactl" in env.cluster_env.exec("plain", "ls", "/dev")
    finally:
        env.stop_agent()
        env.start_agent()


def test_a_card_moves_to_another_pool_under_a_running_pod_only_when_the_pod_ends(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("holder", limits={TRAINING: 1})
    held = 0 if env.cards_in("holder") == ["nvidia0"] else 1
    env.order(exclusive(env.card(0), SERVING), exclusive(env.card(1), SERVING))
    env.wait_offered(SERVING, 1)
    settle(2)
    assert env.allocatable(SERVING) == 1, "the card in use must not be offered again"
    assert env.cards_in("holder") == [f"nvidia{held}"]
    assert env.cluster_env.container("holder")["restartCount"] == 0
    until(
        lambda: [(each["inventoryIDs"], each["healthy"]) for each in offers(env, TRAINING)] == [([env.card(held)], 0)]
    )
    env.cluster_env.run_pod("next", limits={SERVING: 1})
    assert env.cards_in("next") == [f"nvidia{1 - held}"]
    env.cluster_env.delete_pod("holder")
    env.wait_offered(SERVING, 2)
    until(lambda: not offers(env, TRAINING))


def test_pods_take_turns_on_a_card_and_are_spread_fairly(env: AgentEnv) -> None:
    env.order(time_sliced(env.card(0), 2, SHARED), time_sliced(env.card(1), 2, SHARED))
    env.wait_offered(SHARED, 4)
    pods = [f"turn-{number}" for number in range(4)]
    for pod in pods:
        env.cluster_env.run_pod(pod, limits={SHARED: 1})
    seen = [env.cards_in(pod) for pod in pods]
    assert sorted(seen) == [["nvidia0"], ["nvidia0"], ["nvidia1"], ["nvidia1"]]
    assert seen[0] != seen[1], "the second pod gets the card that is free"
    until(lambda: len(env.users(0)) == 2 and len(env.users(1)) == 2)


def test_instances_are_cut_offered_and_seen_one_by_one(env: AgentEnv) -> None:
    name = f"{PREFIX}/training.3g.71gb"
    env.order(partitioned(env.card(0), **{"3g_71gb": 2}))
    env.wait_offered(name, 2)
    env.cluster_env.run_pod("left", limits={name: 1})
    env.cluster_env.run_pod("right", limits={name: 1})
    gates = [set(env.cluster_env.exec(pod, "ls", "/dev/nvidia-caps").split()) for pod in ("left", "right")]
    assert all(len(gate) == 2 for gate in gates), "one for the GPU instance, one for its compute instance"
    assert not gates[0] & gates[1]
    assert env.cards_in("left") == env.cards_in("right") == ["nvidia0"]


def test_an_instance_in_use_outlives_another_layout(env: AgentEnv) -> None:
    large, small = f"{PREFIX}/training.3g.71gb", f"{PREFIX}/training.1g.18gb"
    env.order(partitioned(env.card(0), **{"3g_71gb": 2}))
    env.wait_offered(large, 2)
    env.cluster_env.run_pod("keeper", limits={large: 1})
    gate = env.cluster_env.exec("keeper", "ls", "/dev/nvidia-caps")
    env.order(partitioned(env.card(0), **{"1g_18gb": 7}))
    until(lambda: 0 < env.allocatable(small) < 7, within=90)
    until(lambda: [problem["reason"] for problem in problems(env)] == ["Waiting"])
    assert "keeper" in json.dumps(problems(env))
    assert env.cluster_env.exec("keeper", "ls", "/dev/nvidia-caps") == gate
    env.cluster_env.delete_pod("keeper")
    env.wait_offered(small, 7)
    until(lambda: not problems(env))


def test_a_layout_that_no_card_can_have_is_said_and_changes_nothing(env: AgentEnv) -> None:
    env.order(partitioned(env.card(0), **{"3g_71gb": 3}))
    until(lambda: problems(env))
    (problem,) = problems(env)
    assert problem["reason"] == "Misconfigured"
    assert "3g.71gb" in problem["message"]
    events = ("get", "events", "-A", "--field-selector", "reason=GPUOrderNotCarriedOut")
    until(lambda: "at most 2" in env.cluster_env.kubectl(*events))


def test_the_node_was_checked_and_its_check_passed(env: AgentEnv) -> None:
    until(lambda: env.state()["status"].get("validation"))
    steps = {step["name"]: step["result"] for step in env.state()["status"]["validation"]["steps"]}
    assert {name: steps[name] for name in ("driver", "toolkit", "cuda")} == dict.fromkeys(
        ("driver", "toolkit", "cuda"), "Passed"
    )
