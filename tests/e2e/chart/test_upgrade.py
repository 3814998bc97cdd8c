"""From the release before to this one, on a real node: pods keep their cards, and agents and controllers of the two
releases work together, both ways round.

An upgrade replaces agents a few at a time, so for a while controllers of one release order agents of the other. What
each of the two consists of then is the pod template of its own release beside the other objects of the new one:
`kubectl rollout undo` makes exactly that. The tests are one story, in order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from blocking_wait import until
from e2e.chart.test_chart import MACHINE, POOL, TRAINING, Release, allocatable
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.agent.simulated.machine import HARDWARE, write_machine
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.identity import inventory_id
from helm.chart import CHART, NAMESPACE, RELEASE, Helm
from image.building import shared_image
from image.release_before import REPOSITORY, TAG, ReleaseBefore, release_before

pytestmark = pytest.mark.timeout(600)  # the images may have to be built first
FIRST, SECOND = (str(inventory_id("node-a", address)) for address in MACHINE.addresses)
OLD_IMAGE = f"{REPOSITORY}:{TAG}"
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "controller": {"replicas": 1},
    "agent": {"hardware": "simulated"},
}
"""Such as both charts know."""


@pytest.fixture(scope="module")
def before() -> ReleaseBefore:
    return release_before()


@pytest.fixture(scope="module")
def cluster_env(
    start_cluster_env: Callable[..., ClusterEnv], before: ReleaseBefore, tmp_path_factory: pytest.TempPathFactory
) -> ClusterEnv:
    """A node with two cards, and the images of both releases on it."""
    cluster_env = start_cluster_env("node-a", services=True, api=False)
    cluster_env.node.import_image(before.image)
    cluster_env.node.import_image(shared_image(tmp_path_factory).archive)
    cluster_env.kubectl("label", "node", "node-a", "feature.node.kubernetes.io/pci-10de.present=true")
    cluster_env.kubectl("annotate", "node", "node-a", f"{HARDWARE}={write_machine(MACHINE)}")
    return cluster_env


@pytest.fixture(scope="module")
def release(cluster_env: ClusterEnv, helm: Helm) -> Release:
    return Release(cluster_env, helm, NAMESPACE)


def image_of(release: Release, component: str) -> str | None:
    """The image of the only pod of a component, once it is ready."""
    pods = [pod for pod in release.pods(component) if "deletionTimestamp" not in pod["metadata"]]
    ready = [pod["status"].get("containerStatuses", [{}])[0].get("ready") for pod in pods]
    return pods[0]["spec"]["containers"][0]["image"] if ready == [True] else None


def await_pods(release: Release, *, controller: str, agent: str) -> None:
    """Wait until the pods of both are ready and of these releases; their logs tell why they are not."""
    wanted = {"controller": controller == "old", "agent": agent == "old"}

    def settled() -> bool:
        images = {component: image_of(release, component) for component in wanted}
        return all(image is not None and (image == OLD_IMAGE) == wanted[each] for each, image in images.items())

    try:
        until(settled, within=150)
    except AssertionError as error:
        for component in wanted:
            error.add_note(last_words(release, component))
        raise


def last_words(release: Release, component: str) -> str:
    chosen = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}", "--tail=20", "--prefix")
    return release.cluster_env.kubectl("logs", *chosen)


def approve(cluster_env: ClusterEnv, card: str, pool: str | None, offered: str) -> None:
    """Approve a card or take that back: controller and agent have to work together for it to show on the node."""
    change = f"gpu.deckhouse.io/assignment={pool}" if pool else "gpu.deckhouse.io/assignment-"
    cluster_env.kubectl("annotate", "gpudevice", card, "--overwrite", change)
    until(lambda: allocatable(cluster_env) == offered, within=150)


def works(cluster_env: ClusterEnv, name: str) -> None:
    """A card leaves its pool and comes back, and a new pod gets it; the pod that was there first notices nothing."""
    approve(cluster_env, SECOND, None, "1")
    approve(cluster_env, SECOND, "training", "2")
    cluster_env.run_pod(name, limits={TRAINING: 1})
    assert devices(cluster_env, name) == {"nvidia0", "nvidia1"} - devices(cluster_env, "trainer")
    cluster_env.delete_pod(name)
    trainer = cluster_env.container("trainer")
    assert (trainer["restartCount"], "running" in trainer["state"]) == (0, True)
    assert pool_of(cluster_env, FIRST) == pool_of(cluster_env, SECOND) == "training"


def is_known(cluster_env: ClusterEnv, card: str) -> bool:
    return cluster_env.find(GPUDevice.resource.path(name=card)) is not None


def devices(cluster_env: ClusterEnv, pod: str) -> set[str]:
    return {"nvidia0", "nvidia1"} & set(cluster_env.exec(pod, "ls", "/dev").split())


def pool_of(cluster_env: ClusterEnv, card: str) -> str | None:
    found: dict[str, Any] = cluster_env.read(GPUDevice.resource.path(name=card))
    pool: str | None = found["status"].get("poolRef", {}).get("name")
    return pool


def undo(cluster_env: ClusterEnv, workload: str) -> None:
    """Give a workload the pod template that it had before."""
    cluster_env.kubectl("rollout", "undo", workload, "-n", NAMESPACE)


def test_a_pod_runs_with_the_release_before(cluster_env: ClusterEnv, release: Release, before: ReleaseBefore) -> None:
    values = {**VALUES, "image": {"pullPolicy": "Never", "tag": TAG}}
    release.run("install", RELEASE, str(before.chart), "--create-namespace", values=values)
    await_pods(release, controller="old", agent="old")
    cluster_env.kubectl("create", "-f", "-", given=POOL % ("training", TRAINING))
    for card, offered in ((FIRST, "1"), (SECOND, "2")):
        until(partial(is_known, cluster_env, card), within=150)
        approve(cluster_env, card, "training", offered)
    cluster_env.run_pod("trainer", limits={TRAINING: 1})
    assert len(devices(cluster_env, "trainer")) == 1


def test_an_upgrade_leaves_it_alone_and_new_pods_get_cards(cluster_env: ClusterEnv, release: Release) -> None:
    trainer = cluster_env.container("trainer")["containerID"]
    held = devices(cluster_env, "trainer")
    release.run("upgrade", RELEASE, str(CHART), values=VALUES)
    await_pods(release, controller="new", agent="new")
    works(cluster_env, "upgraded")
    assert cluster_env.container("trainer")["containerID"] == trainer
    assert devices(cluster_env, "trainer") == held


def test_a_new_controller_works_with_an_old_agent(cluster_env: ClusterEnv, release: Release) -> None:
    undo(cluster_env, "daemonset/gpu-control-plane-agent")
    await_pods(release, controller="new", agent="old")
    works(cluster_env, "old-agent")


def test_an_old_controller_works_with_a_new_agent(cluster_env: ClusterEnv, release: Release) -> None:
    undo(cluster_env, "daemonset/gpu-control-plane-agent")
    undo(cluster_env, "deployment/gpu-control-plane-controller")
    await_pods(release, controller="old", agent="new")
    works(cluster_env, "old-controller")


def test_a_rollback_leaves_it_alone_as_well(cluster_env: ClusterEnv, release: Release) -> None:
    trainer = cluster_env.container("trainer")["containerID"]
    release.run("rollback", RELEASE, "1")
    await_pods(release, controller="old", agent="old")
    works(cluster_env, "rolled-back")
    assert cluster_env.container("trainer")["containerID"] == trainer
