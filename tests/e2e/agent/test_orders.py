"""Orders reach pods: whole cards, time_sliced and instances, each container with exactly its own device files."""

import json
from typing import Any

import pytest

from blocking_wait import until
from e2e.agent.scene import PREFIX, AgentScene, settle
from unit.agent.step.builders import exclusive, partitioned, time_sliced

TRAINING = f"{PREFIX}/training"
SERVING = f"{PREFIX}/serving"
SHARED = f"{PREFIX}/shared"


@pytest.fixture(autouse=True)
def emptied(scene: AgentScene) -> None:
    """Every test begins with a node that offers nothing."""
    scene.stage.kubectl("delete", "pods", "--all", "--wait")
    scene.order()
    until(lambda: not scene.state()["status"].get("plugin", {}).get("resources"))


def offers(scene: AgentScene, name: str) -> list[dict[str, Any]]:
    """What the agent says about a resource."""
    return [each for each in scene.state()["status"]["plugin"]["resources"] if each["name"] == name]


def problems(scene: AgentScene) -> list[dict[str, Any]]:
    return list(scene.state()["status"].get("plugin", {}).get("problems", ()))


def test_a_pod_sees_exactly_its_card_and_the_card_says_who_has_it(scene: AgentScene) -> None:
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("one", limits={TRAINING: 1})
    scene.stage.run_pod("two", limits={TRAINING: 1})
    assert sorted(scene.cards_in("one") + scene.cards_in("two")) == ["nvidia0", "nvidia1"]
    until(lambda: sorted(scene.users(0) + scene.users(1)) == ["one", "two"])
    scene.stage.delete_pod("one")
    scene.stage.delete_pod("two")
    until(lambda: scene.users(0) + scene.users(1) == [])


def test_a_pod_that_asks_for_none_sees_no_card(scene: AgentScene) -> None:
    scene.order(exclusive(scene.card(0), TRAINING))
    scene.wait_offered(TRAINING, 1)
    scene.stage.run_pod("none")
    assert scene.cards_in("none") == []


def test_without_cdi_a_pod_sees_exactly_its_card(scene: AgentScene) -> None:
    scene.stop_agent()
    scene.start_agent("--injection", "Kubelet")
    try:
        scene.order(exclusive(scene.card(1), TRAINING))
        scene.wait_offered(TRAINING, 1)
        scene.stage.run_pod("plain", limits={TRAINING: 1})
        assert scene.cards_in("plain") == ["nvidia1"]
        assert "nvidiactl" in scene.stage.exec("plain", "ls", "/dev")
    finally:
        scene.stop_agent()
        scene.start_agent()


def test_a_card_moves_to_another_pool_under_a_running_pod_only_when_the_pod_ends(scene: AgentScene) -> None:
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("holder", limits={TRAINING: 1})
    held = 0 if scene.cards_in("holder") == ["nvidia0"] else 1
    scene.order(exclusive(scene.card(0), SERVING), exclusive(scene.card(1), SERVING))
    scene.wait_offered(SERVING, 1)
    settle(2)
    assert scene.allocatable(SERVING) == 1, "the card in use must not be offered again"
    assert scene.cards_in("holder") == [f"nvidia{held}"]
    assert scene.stage.container("holder")["restartCount"] == 0
    until(
        lambda: (
            [(each["inventoryIDs"], each["healthy"]) for each in offers(scene, TRAINING)] == [([scene.card(held)], 0)]
        )
    )
    scene.stage.run_pod("next", limits={SERVING: 1})
    assert scene.cards_in("next") == [f"nvidia{1 - held}"]
    scene.stage.delete_pod("holder")
    scene.wait_offered(SERVING, 2)
    until(lambda: not offers(scene, TRAINING))


def test_pods_take_turns_on_a_card_and_are_spread_fairly(scene: AgentScene) -> None:
    scene.order(time_sliced(scene.card(0), 2, SHARED), time_sliced(scene.card(1), 2, SHARED))
    scene.wait_offered(SHARED, 4)
    pods = [f"turn-{number}" for number in range(4)]
    for pod in pods:
        scene.stage.run_pod(pod, limits={SHARED: 1})
    seen = [scene.cards_in(pod) for pod in pods]
    assert sorted(seen) == [["nvidia0"], ["nvidia0"], ["nvidia1"], ["nvidia1"]]
    assert seen[0] != seen[1], "the second pod gets the card that is free"
    until(lambda: len(scene.users(0)) == 2 and len(scene.users(1)) == 2)


def test_instances_are_cut_offered_and_seen_one_by_one(scene: AgentScene) -> None:
    name = f"{PREFIX}/training.3g.71gb"
    scene.order(partitioned(scene.card(0), **{"3g_71gb": 2}))
    scene.wait_offered(name, 2)
    scene.stage.run_pod("left", limits={name: 1})
    scene.stage.run_pod("right", limits={name: 1})
    gates = [set(scene.stage.exec(pod, "ls", "/dev/nvidia-caps").split()) for pod in ("left", "right")]
    assert all(len(gate) == 2 for gate in gates), "one for the GPU instance, one for its compute instance"
    assert not gates[0] & gates[1]
    assert scene.cards_in("left") == scene.cards_in("right") == ["nvidia0"]


def test_an_instance_in_use_outlives_another_layout(scene: AgentScene) -> None:
    large, small = f"{PREFIX}/training.3g.71gb", f"{PREFIX}/training.1g.18gb"
    scene.order(partitioned(scene.card(0), **{"3g_71gb": 2}))
    scene.wait_offered(large, 2)
    scene.stage.run_pod("keeper", limits={large: 1})
    gate = scene.stage.exec("keeper", "ls", "/dev/nvidia-caps")
    scene.order(partitioned(scene.card(0), **{"1g_18gb": 7}))
    until(lambda: 0 < scene.allocatable(small) < 7, within=90)
    until(lambda: [problem["reason"] for problem in problems(scene)] == ["Waiting"])
    assert "keeper" in json.dumps(problems(scene))
    assert scene.stage.exec("keeper", "ls", "/dev/nvidia-caps") == gate
    scene.stage.delete_pod("keeper")
    scene.wait_offered(small, 7)
    until(lambda: not problems(scene))


def test_a_layout_that_no_card_can_have_is_said_and_changes_nothing(scene: AgentScene) -> None:
    scene.order(partitioned(scene.card(0), **{"3g_71gb": 3}))
    until(lambda: problems(scene))
    (problem,) = problems(scene)
    assert problem["reason"] == "Misconfigured"
    assert "3g.71gb" in problem["message"]
    events = ("get", "events", "-A", "--field-selector", "reason=GPUOrderNotCarriedOut")
    until(lambda: "at most 2" in scene.stage.kubectl(*events))


def test_the_node_was_checked_and_its_check_passed(scene: AgentScene) -> None:
    until(lambda: scene.state()["status"].get("validation"))
    steps = {step["name"]: step["result"] for step in scene.state()["status"]["validation"]["steps"]}
    assert {name: steps[name] for name in ("driver", "toolkit", "cuda")} == dict.fromkeys(
        ("driver", "toolkit", "cuda"), "Passed"
    )
