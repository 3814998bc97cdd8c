"""DaemonSets that select each other's pods are deleted together, and the next process finishes what one began."""

from typing import Any

import pytest

from gpu_control_plane.api.pod import Pod
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Conflict, NotFound
from gpu_control_plane.kube.finalizers import add_finalizer
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.operator.stack.orphan_delete import (
    FINALIZER,
    delete_and_orphan_pods,
    finish_orphan_deletes,
    held_for_orphaning,
)

LABELS = {"app": "shared"}
CONTAINERS = {"containers": [{"name": "it", "image": "example.com/it:v1"}]}


async def daemonset(client: Client, namespace: str, name: str) -> LiveDaemonSet:
    """A DaemonSet with a pod."""
    template = {"metadata": {"labels": LABELS}, "spec": CONTAINERS}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    made = await client.create(LiveDaemonSet, {"metadata": {"name": name}, "spec": spec}, namespace)
    await client.create(Pod, _pod(f"{name}-pod", made), namespace)
    return made


def _pod(name: str, owner: LiveDaemonSet) -> dict[str, Any]:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"metadata": {"name": name, "labels": LABELS, "ownerReferences": [reference]}, "spec": CONTAINERS}


async def begin(client: Client, item: LiveDaemonSet) -> None:
    """What a process does before it dies."""
    await add_finalizer(client, item, FINALIZER)
    await client.delete(LiveDaemonSet, item.name, item.metadata.namespace, propagation="Background")


async def owner_of(client: Client, namespace: str, name: str) -> str:
    pod = await client.get(Pod, f"{name}-pod", namespace)
    return pod.controller.name if pod.controller is not None else ""


async def test_daemonsets_are_deleted_and_their_pods_lose_their_owner(client: Client, namespace: str) -> None:
    made = [await daemonset(client, namespace, name) for name in ("first", "second")]
    kept = await daemonset(client, namespace, "kept")
    await delete_and_orphan_pods(client, made, namespace)
    for item in made:
        with pytest.raises(NotFound):
            await client.get(LiveDaemonSet, item.name, namespace)
        assert not await owner_of(client, namespace, item.name)
    assert await client.get(LiveDaemonSet, kept.name, namespace) == kept
    assert await owner_of(client, namespace, kept.name) == kept.name


async def test_a_daemonset_that_is_gone_already_does_not_stop_the_others(client: Client, namespace: str) -> None:
    gone, there = [await daemonset(client, namespace, name) for name in ("gone", "there")]
    await client.delete(LiveDaemonSet, gone.name, namespace)
    await delete_and_orphan_pods(client, [gone, there], namespace)
    with pytest.raises(NotFound):
        await client.get(LiveDaemonSet, there.name, namespace)


async def test_a_deletion_that_a_dead_process_began_is_finished(client: Client, namespace: str) -> None:
    begun, other = [await daemonset(client, namespace, name) for name in ("begun", "other")]
    await begin(client, begun)
    assert held_for_orphaning(await client.get(LiveDaemonSet, begun.name, namespace))
    assert not held_for_orphaning(other)
    assert await finish_orphan_deletes(client, namespace) == 1
    with pytest.raises(NotFound):
        await client.get(LiveDaemonSet, begun.name, namespace)
    assert not await owner_of(client, namespace, begun.name)
    assert await finish_orphan_deletes(client, namespace) == 0


async def test_uninstalling_finishes_held_deletions(client: Client, namespace: str) -> None:
    await begin(client, await daemonset(client, namespace, "begun"))
    said: list[str] = []
    await clean_up(
        client, feature_labels=False, crds=False, timeout=0.0, operand_namespace=namespace, report=said.append
    )
    assert "DaemonSets let go that were held for their pods: 1." in said
    with pytest.raises(NotFound):
        await client.get(LiveDaemonSet, "begun", namespace)


async def test_a_daemonset_that_has_changed_since_it_was_read_stays(client: Client, namespace: str) -> None:
    for held in (False, True):
        item = await daemonset(client, namespace, f"changed-{held}".lower())
        item = await add_finalizer(client, item, FINALIZER) if held else item
        await client.patch(LiveDaemonSet, item.name, {"metadata": {"labels": {"now": "mine"}}}, namespace=namespace)
        with pytest.RaisesGroup(Conflict):
            await delete_and_orphan_pods(client, [item], namespace)
        assert not (await client.get(LiveDaemonSet, item.name, namespace)).deleting
        assert await owner_of(client, namespace, item.name) == item.name
