"""The JSON API answers what the pages and the commands show, to those who may see it."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import yaml

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.console.api.endpoints import ENDPOINTS, PREFIX
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local import Cluster
from gpu_control_plane.usage.reading import StartedPod
from integration.console.env import (
    ALL,
    READ_FLEET,
    READ_PODS,
    RunningConsole,
    new_namespace,
    person,
    running_console,
)
from integration.console.objects import a_card, a_waiting_pod
from waiting import until


@pytest.fixture
async def console(cluster: Cluster) -> AsyncIterator[RunningConsole]:
    async with running_console(cluster.kubeconfig) as running:
        yield running


async def test_it_describes_itself(console: RunningConsole, client: Client) -> None:
    reader = await person(client, READ_FLEET)
    document = await console.ask(f"{PREFIX}/openapi.json", reader)
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {f"{PREFIX}{each.path}" for each in ENDPOINTS}


async def test_it_lists_what_there_is(console: RunningConsole, client: Client) -> None:
    namespace = await new_namespace(client)
    card = await a_card(client, users=((namespace, "train-0"),))
    await a_waiting_pod(client, namespace, "train-1")
    admin = await person(client, ALL)
    await until(lambda: console.caches.waiting.get("train-1", namespace) and console.caches.cards.get(card.name))
    me = await console.ask(f"{PREFIX}/me", admin)
    assert me["name"] == admin.user
    listed = await console.ask(f"{PREFIX}/cards?node={card.spec.node_name}", admin)
    assert [row["name"] for row in listed["items"]] == [card.name]
    assert (await console.ask(f"{PREFIX}/cards?limit=1", admin))["total"] >= 1
    pods = await console.ask(f"{PREFIX}/pods?namespace={namespace}", admin)
    assert {row["name"]: row["status"] for row in pods["items"]} == {"train-0": "Holds", "train-1": "Waits"}
    for path in ("nodes", "pools", "overview", "upgrades"):
        assert isinstance(await console.ask(f"{PREFIX}/{path}", admin), dict)
    verdict = await console.ask(f"{PREFIX}/pods/{namespace}/train-1/explanation", admin)
    assert verdict["waits"]
    assert (await console.ask(f"{PREFIX}/pods/{namespace}/train-0/explanation", admin))["cards"] == [card.name]
    assert (await console.ask(f"{PREFIX}/cards/{card.name}/explanation", admin))["items"]


async def test_a_tenant_is_told_of_its_own_pods(console: RunningConsole, client: Client) -> None:
    mine, other = await new_namespace(client), await new_namespace(client)
    await a_card(client, users=((mine, "train-0"), (other, "secret-0")))
    tenant = await person(client, [*READ_FLEET[:1]])
    also = await person(client, READ_PODS, namespaces=[mine])
    await until(lambda: any(card.status.used_by for card in console.caches.cards))
    for who in (tenant, also):
        assert other not in str(await console.ask(f"{PREFIX}/pods", who))
        assert "hidden" not in str((await console.ask(f"{PREFIX}/pods", who))["items"])
    assert "secret-0" not in str(await console.ask(f"{PREFIX}/cards", tenant))
    await console.ask(f"{PREFIX}/pods/{other}/secret-0/explanation", also, status=403)
    await console.ask(f"{PREFIX}/cards", also, status=403)


async def test_actions_are_carried_out_as_the_asker(console: RunningConsole, client: Client) -> None:
    card = await a_card(client)
    admin, viewer = await person(client, ALL), await person(client, READ_FLEET)
    await until(lambda: console.caches.cards.get(card.name))
    body = {"cards": [card.name], "reason": "new rack"}
    planned = await console.ask(f"{PREFIX}/actions/hold", viewer, json={**body, "dryRun": True})
    assert planned["plan"]["command"].startswith("kubectl gpu hold")
    assert planned["outcomes"] == []
    refused = await console.ask(f"{PREFIX}/actions/hold", viewer, json=body)
    assert [outcome["done"] for outcome in refused["outcomes"]] == [False]
    done = await console.ask(f"{PREFIX}/actions/hold", admin, json=body)
    assert [outcome["done"] for outcome in done["outcomes"]] == [True]
    assert (await client.get(GPUDevice, card.name)).metadata.annotations[Annotation.HOLD] == "new rack"
    await console.ask(f"{PREFIX}/actions/explode", admin, json=body, status=404)
    await console.ask(f"{PREFIX}/actions/hold", admin, json={"cards": "all"}, status=400)


async def test_a_pool_is_previewed_and_not_written(console: RunningConsole, client: Client) -> None:
    admin, viewer, nobody = await person(client, ALL), await person(client, READ_FLEET), await person(client)
    pool = {
        "apiVersion": GPUPool.resource.api_version,
        "kind": "GPUPool",
        "metadata": {"name": "previewed"},
        "spec": {"access": {"namespaces": ["team-a"]}},
    }
    (found,) = (await console.ask(f"{PREFIX}/preview", admin, json=pool))["items"]
    assert (found["pool"], found["new"], found["access"]["added"]) == ("previewed", True, ["namespace team-a"])
    assert found["command"] == "kubectl gpu preview -f pool.yaml"
    assert "not checked" in str((await console.ask(f"{PREFIX}/preview", viewer, json=pool))["unchecked"])
    await console.ask(f"{PREFIX}/preview", nobody, json=pool, status=403)
    await console.ask(f"{PREFIX}/preview", admin, json={"kind": "Secret"}, status=400)
    headers = {**admin.header, "Content-Type": "application/yaml"}
    async with (
        console.program() as program,
        program.post(f"{PREFIX}/preview", data=yaml.safe_dump(pool), headers=headers) as answer,
    ):
        assert (await answer.json())["items"] == [found]
    assert "previewed" not in {each.name for each in await client.list(GPUPool)}


async def test_hours_are_told_without_whose_they_are(console: RunningConsole, client: Client) -> None:
    mine, other = await new_namespace(client), await new_namespace(client)
    card = await a_card(client, users=((mine, "train-0"), (other, "secret-0")))
    begun = {"status": {"startTime": f"{utc_now() - timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"}}
    for namespace, name in ((mine, "train-0"), (other, "secret-0")):
        await a_waiting_pod(client, namespace, name)
        await client.patch(StartedPod, name, begun, namespace=namespace, subresource="status")
    admin, viewer = await person(client, ALL), await person(client, READ_FLEET)
    tenant = await person(client, READ_PODS, namespaces=[mine])
    await until(lambda: any(each.name == card.name and each.status.used_by for each in console.caches.cards))
    seen = await console.ask(f"{PREFIX}/usage?since=2h", admin)
    assert {row["key"]: row["held"] for row in seen["rows"]}.items() >= {(mine, 1.0), (other, 1.0)}
    assert (seen["covered"], seen["source"]) == (None, "the cluster's objects, since the pods started")
    for by in ("namespace", "owner", "pool", "node", "model"):
        told = str(await console.ask(f"{PREFIX}/usage?since=2h&by={by}", viewer))
        assert other not in told
        assert "secret-0" not in told
    (hidden,) = (await console.ask(f"{PREFIX}/usage?since=2h", viewer))["rows"]
    assert (hidden["key"], hidden["held"] >= 2) == ("(hidden)", True)
    await console.ask(f"{PREFIX}/usage", tenant, status=403)
    for query in ("since=forever", "since=999w", "by=colour"):
        await console.ask(f"{PREFIX}/usage?{query}", admin, status=400)
