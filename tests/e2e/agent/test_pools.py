"""The whole way: a person approves a card, the pool orders it, the node offers it, a pod has it."""

from collections.abc import Iterator

import pytest

from blocking_wait import until
from e2e.agent.scene import PREFIX, AgentScene, scene_on, settle
from e2e.stage import Stage

TRAINING, SERVING = f"{PREFIX}/training", f"{PREFIX}/serving"
UNPOOLED = "nvidia.com/gpu"
POOL = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: %s}
spec: {}
"""


@pytest.fixture(scope="module")
def scene(stage: Stage) -> Iterator[AgentScene]:
    with scene_on(stage, agent=("--labels", "--unpooled", UNPOOLED)) as scene:
        for pool in ("training", "serving"):
            stage.kubectl("create", "-f", "-", given=POOL % pool)
        yield scene


def approve(scene: AgentScene, index: int, pool: str | None) -> None:
    change = f"gpu.deckhouse.io/assignment={pool}" if pool else "gpu.deckhouse.io/assignment-"
    scene.stage.kubectl("annotate", "gpudevice", scene.card(index), change)


def state_of(scene: AgentScene, index: int) -> str:
    state: str = scene.device(index)["status"].get("state", "")
    return state


def test_cards_in_no_pool_are_offered_under_the_familiar_name(scene: AgentScene) -> None:
    scene.wait_offered(UNPOOLED, 2)
    conflicts = scene.state()["status"].get("plugin", {}).get("conflicts")
    assert conflicts is None, "our own resource is no rival"


def test_the_node_carries_the_familiar_labels(scene: AgentScene) -> None:
    until(lambda: "nvidia.com/gpu.product" in scene.stage.node_object()["metadata"]["labels"])
    labels = scene.stage.node_object()["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.159.04"


def test_an_approved_card_reaches_a_pod(scene: AgentScene) -> None:
    approve(scene, 0, "training")
    scene.wait_offered(TRAINING, 1)
    scene.wait_offered(UNPOOLED, 1)
    scene.stage.run_pod("trainer", limits={TRAINING: 1})
    assert scene.cards_in("trainer") == ["nvidia0"]
    until(lambda: scene.users(0) == ["trainer"])
    until(lambda: state_of(scene, 0) == "Assigned")


def test_a_card_in_use_changes_pools_only_when_its_pod_ends(scene: AgentScene) -> None:
    approve(scene, 0, None)
    scene.wait_offered(TRAINING, 0)
    settle(2)
    assert state_of(scene, 0) == "Assigned", "it drains"
    assert scene.cards_in("trainer") == ["nvidia0"]
    scene.stage.delete_pod("trainer")
    until(lambda: state_of(scene, 0) == "Unassigned", within=90)
    approve(scene, 0, "serving")
    scene.wait_offered(SERVING, 1)
    scene.stage.run_pod("server", limits={SERVING: 1})
    assert scene.cards_in("server") == ["nvidia0"]


def test_a_pod_promised_a_card_that_has_left_fails_and_is_counted(scene: AgentScene) -> None:
    counted = scene.metric("gpu_agent_unexpected_admission_errors_total")
    scene.stage.create_pod("late", limits={TRAINING: 1}, node=scene.node.name)
    until(lambda: scene.stage.pod("late")["status"]["phase"] == "Failed")
    assert scene.stage.pod("late")["status"]["reason"] == "UnexpectedAdmissionError"
    until(lambda: scene.metric("gpu_agent_unexpected_admission_errors_total") == counted + 1)


def test_the_cards_metrics_name_the_pod(scene: AgentScene) -> None:
    until(lambda: 'pod="server"' in scene.metrics())
    line = next(line for line in scene.metrics().splitlines() if "DCGM_FI_DEV_GPU_TEMP{" in line and "server" in line)
    assert f'UUID="{scene.uuid(0)}"' in line
    assert 'namespace="default"' in line
    assert 'container="main"' in line


def test_a_quiet_node_writes_nothing(scene: AgentScene) -> None:
    def quiet() -> bool:
        before = scene.writes()
        settle(20)  # More than one look at the hardware.
        return scene.writes() == before

    # The next look finds the card busy, which is told once; so is how often an Event was told, half a minute later.
    assert any(quiet() for _ in range(4))
