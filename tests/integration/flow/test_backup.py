"""Backup, a new cluster, restore: every card is in its pool again without a person, whether its machine has joined
before or after."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_control_plane.agent.fleet.machines import add_nodes
from gpu_control_plane.agent.simulated.machine import new_machine, swap
from gpu_control_plane.api import GPUApproval, GPUDevice, GPUPool
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.flow.env import FlowEnv, flow_env, pool_of
from integration.flow.test_actions import DONE, FAILED, PARTLY, gpu
from waiting import until_async

A, B, C, D = (f"node-{node}" for node in "abcd")
FIRST, SECOND = "0000-18-00-0", "0000-2a-00-0"
POOLED = {
    f"{A}-{FIRST}": "training",
    f"{A}-{SECOND}": "inference",
    f"{B}-{FIRST}": "training",
    f"{B}-{SECOND}": None,
    f"{C}-{FIRST}": "spare",
    f"{C}-{SECOND}": None,
    f"{D}-{FIRST}": "training",
    f"{D}-{SECOND}": "inference",
}
"""Of node-b and node-c a card is held, and one is out of service."""


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A second one, with nothing in it but our CRDs."""
    with Cluster(tmp_path / "new-cluster", ensure_binaries([*Component]), Settings(), Quiet()) as cluster:
        install_crds(cluster.kubeconfig)
        install_policies(cluster.kubeconfig)
        yield cluster


@pytest.mark.timeout(300)
async def test_every_card_is_in_its_pool_again(whole_cluster: Cluster, new_cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    async with flow_env(whole_cluster, tmp_path / "old") as old:
        await decide(old)
        saved = await gpu(old, "backup", "-o", str(file))
        assert (saved.code, "3 pools, 8 cards" in saved.output) == (DONE, True), saved
        same = await gpu(old, "restore", str(file))
        assert (same.code, "nothing to do" in same.output) == (DONE, True), same
    async with flow_env(new_cluster, tmp_path / "new") as new:
        await new.start_controller_with_webhooks()
        await bad_input_changes_nothing(new, file)
        await new.add_nodes(A)
        await new.devices_known(2)
        await restore_while_machines_are_away(new, file)
        await new.add_nodes(B, C)
        await add_nodes(new.client, [D], swap(new_machine("H200-141", 2), "0000:18:00.0"))
        await every_card_is_back(new)
        await an_exchanged_card_is_not_approved(new, file)
        await conflicts_are_left_alone(new, file)


async def decide(env: FlowEnv) -> None:
    """Pools, one of which takes by itself whatever nobody keeps away; cards for them, a hold, a card out of service."""
    await env.start_controller()
    await env.add_nodes(A, B, C, D)
    await env.devices_known(8)
    for name, pool in POOLED.items():
        kept = {Annotation.HOLD: "to be returned"} if name == f"{B}-{SECOND}" else {}
        labels = {Label.IGNORE: "true"} if name == f"{C}-{SECOND}" else {}
        approval = {Annotation.ASSIGNMENT: pool, Annotation.REASON: "rack 7"} if pool not in {None, "spare"} else {}
        body = {"metadata": {"annotations": {**kept, **approval}, "labels": labels}}
        await env.client.patch(GPUDevice, name, body)
    await env.add_pool("spare", assignment={"autoApproveSelector": {}})
    await env.add_pool("training")
    await env.add_pool("inference", access={"namespaces": ["default"]})
    await until_async(lambda: pooled(env, POOLED), within=90, saying="every card is in its pool")


async def pooled(env: FlowEnv, expected: dict[str, str | None]) -> bool:
    found = {name: pool_of(device) for name, device in (await env.devices()).items()}
    return found == expected


def cut_off(file: Path) -> Path:
    """The file as a full disk leaves it."""
    broken = file.with_name("broken.yaml")
    broken.write_text("".join(file.read_text().splitlines(keepends=True)[:-3]))
    return broken


async def bad_input_changes_nothing(env: FlowEnv, file: Path) -> None:
    broken = await asyncio.to_thread(cut_off, file)
    refused = await gpu(env, "restore", str(broken))
    assert refused.code == FAILED, refused
    assert "its checksum differs" in refused.errors
    assert await env.client.list(GPUPool) == []
    assert await env.client.list(GPUApproval) == []


async def restore_while_machines_are_away(env: FlowEnv, file: Path) -> None:
    """The dry run says what it leads to; what is written can be written again."""
    shown = await gpu(env, "restore", str(file), "--dry-run")
    assert shown.code == DONE, shown
    assert f"{A}-{FIRST}" in shown.output
    assert "6 cards are not there yet, on 3 nodes" in shown.errors + shown.output
    assert await env.client.list(GPUPool) == []
    restored = await gpu(env, "restore", str(file))
    assert restored.code == DONE, restored
    assert len(await env.client.list(GPUApproval)) == 6
    again = await gpu(env, "restore", str(file))
    assert (again.code, "written" in again.output) == (DONE, False), again
    await until_async(
        lambda: pooled(env, {name: pool for name, pool in POOLED.items() if name.startswith(A)}),
        within=60,
        saying="the cards that were there are in their pools",
    )


async def every_card_is_back(env: FlowEnv) -> None:
    """But for the one that was exchanged, which the pool that approves by itself may have."""
    expected = {**POOLED, f"{D}-{FIRST}": "spare"}
    await until_async(lambda: pooled(env, expected), within=90, saying="every card is in its pool again")
    devices = await env.devices()
    assert devices[f"{B}-{SECOND}"].metadata.annotations[Annotation.HOLD] == "to be returned"
    assert devices[f"{C}-{SECOND}"].ignored
    told = devices[f"{B}-{FIRST}"].status.history[0]
    assert (told.what, told.why) == ("Assigned to training", "rack 7")


async def an_exchanged_card_is_not_approved(env: FlowEnv, file: Path) -> None:
    """Its approval stays and says so, to people and to the command; nothing else is left to wait."""

    async def told() -> bool:
        waiting = await env.client.list(GPUApproval)
        return [each.name for each in waiting] == [f"{D}-{FIRST}"] and bool(waiting[0].status.message)

    await until_async(told, within=30, saying="one approval is left, and says why")
    (waiting,) = await env.client.list(GPUApproval)
    assert f"Another card is at 0000:18:00.0 of {D}" in (waiting.status.message or "")
    named = await gpu(env, "restore", str(file), "--overwrite")
    assert (named.code, f"{D}-{FIRST}: another card is there" in named.errors) == (PARTLY, True), named


async def conflicts_are_left_alone(env: FlowEnv, file: Path) -> None:
    """A pool with another spec and a card in another pool stay, until the command is told otherwise."""
    moved = f"{A}-{FIRST}"
    assert (await gpu(env, "reassign", moved, "--to", "inference", "--no-wait")).code == DONE
    await env.device_is(moved, lambda device: pool_of(device) == "inference")
    await env.client.patch(GPUPool, "inference", {"spec": {"access": {"namespaces": ["other"]}}})
    refused = await gpu(env, "restore", str(file))
    assert refused.code == PARTLY, refused
    assert f"{moved}: it is in the pool inference, and was in the pool training in the backup" in refused.errors
    assert "GPUPool inference: it exists with another spec; to replace that: --overwrite" in refused.errors
    assert pool_of((await env.devices())[moved]) == "inference"
    forced = await gpu(env, "restore", str(file), "--overwrite")
    assert forced.code == PARTLY, forced  # the exchanged card is never touched
    await env.device_is(moved, lambda device: pool_of(device) == "training")
    access = (await env.pool("inference")).spec.access
    assert access is not None
    assert access.namespaces == ("default",)
    assert access.namespace_selector is None
