"""What a process writes is in its caches when the answer is there, while the watch is held back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec
import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.kube import Client, Key, Object, Resource, Runtime, Selection
from gpu_control_plane.kube.errors import NotFound
from integration.kinds import ConfigMap, Pod, configmap
from integration.rbac import ServiceAccount
from waiting import until

POD = {
    "metadata": {"name": "unscheduled"},
    "spec": {"containers": [{"name": "c", "image": "example.com/none"}], "terminationGracePeriodSeconds": 30},
}


class Labels(Object, frozen=True):
    """ConfigMaps as another reader sees them."""

    resource: ClassVar[Resource] = ConfigMap.resource


class Stage(msgspec.Struct):
    runtime: Runtime
    watch_open: asyncio.Event


@asynccontextmanager
async def holding_back(client: Client, namespace: str) -> AsyncIterator[Stage]:
    """A process whose watches bring nothing until `watch_open` is set."""
    may_pass = asyncio.Event()
    may_pass.set()

    async def hold(request: Request) -> None:
        if request.is_watch:
            await may_pass.wait()

    async with FaultProxy.before(client.config) as proxy:
        proxy.on_chunk = hold
        runtime = Runtime("writer", config=proxy.config, elect=False, status_port=None)
        for kind in (ConfigMap, Labels, Pod):
            runtime.cache(kind, Selection(namespace))
        task = asyncio.create_task(runtime.run())
        for kind in (ConfigMap, Labels, Pod):
            await asyncio.wait_for(runtime.cache(kind, Selection(namespace)).synced(), 60)
        may_pass.clear()
        try:
            yield Stage(runtime, may_pass)
        finally:
            may_pass.set()
            runtime.stop()
            await task


async def test_creations_changes_and_deletions_are_shown_at_once_by_every_view(client: Client, namespace: str) -> None:
    async with holding_back(client, namespace) as stage:
        writer = stage.runtime.client
        maps = stage.runtime.cache(ConfigMap, Selection(namespace))
        labels = stage.runtime.cache(Labels, Selection(namespace))
        key = Key("made", namespace)
        heard: list[tuple[str, str]] = []
        maps.on_change(lambda old, new: heard.append((value(old), value(new))) if name(old, new) == "made" else None)

        await writer.create(ConfigMap, configmap("made", value="1"), namespace)
        assert (value(maps.at(key)), labels.at(key) is not None) == ("1", True)
        await writer.patch(ConfigMap, "made", {"data": {"value": "2"}}, namespace=namespace)
        await client.patch(ConfigMap, "made", {"data": {"value": "another writer's"}}, namespace=namespace)
        await writer.delete(ConfigMap, "made", namespace)
        assert (maps.at(key), labels.at(key)) == (None, None)
        await writer.create(ConfigMap, configmap("made", value="3"), namespace)
        assert value(maps.at(key)) == "3"

        stage.watch_open.set()
        await client.create(ConfigMap, configmap("last"), namespace)
        await until(lambda: maps.get("last", namespace))
        assert heard == [("", "1"), ("1", "2"), ("2", ""), ("", "3")]
        assert maps.expected_deletions == 0


async def test_what_finalizers_keep_is_shown_as_being_deleted(client: Client, namespace: str) -> None:
    async with holding_back(client, namespace) as stage:
        maps = stage.runtime.cache(ConfigMap, Selection(namespace))
        body = {"metadata": {"name": "kept", "finalizers": ["example.com/kept"]}}
        await stage.runtime.client.create(ConfigMap, body, namespace)
        await stage.runtime.client.delete(ConfigMap, "kept", namespace)
        held = maps.get("kept", namespace)
        assert held is not None
        assert held.deleting
        await stage.runtime.client.patch(ConfigMap, "kept", {"metadata": {"finalizers": None}}, namespace=namespace)


async def test_a_pod_that_was_never_scheduled_is_gone_or_going(client: Client, namespace: str) -> None:
    account = {"metadata": {"name": "default"}}
    async with holding_back(client, namespace) as stage:
        await client.create(ServiceAccount, account, namespace)
        pods = stage.runtime.cache(Pod, Selection(namespace))
        await stage.runtime.client.create(Pod, POD, namespace)
        assert pods.get("unscheduled", namespace) is not None
        await stage.runtime.client.delete(Pod, "unscheduled", namespace)
        held = pods.get("unscheduled", namespace)
        assert held is None or held.deleting


async def test_what_others_have_deleted_is_gone_when_that_is_the_answer(client: Client, namespace: str) -> None:
    async with holding_back(client, namespace) as stage:
        maps = stage.runtime.cache(ConfigMap, Selection(namespace))
        made = await stage.runtime.client.create(ConfigMap, configmap("made"), namespace)
        await client.delete(ConfigMap, "made", namespace)
        with pytest.raises(NotFound):
            await stage.runtime.client.delete(ConfigMap, "made", namespace, uid=made.metadata.uid)
        assert maps.at(made.key) is None


def name(old: ConfigMap | None, new: ConfigMap | None) -> str:
    return (old or new).name  # type: ignore[union-attr]


def value(item: ConfigMap | None) -> str:
    return item.data["value"] if item is not None else ""
