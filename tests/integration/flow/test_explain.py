"""Why a pod waits, on a real API server with a real scheduler: told once for each cause, and not again by a restart."""

import asyncio
import functools
import sys
from pathlib import Path
from typing import Any

import msgspec

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.events import Event
from gpu_control_plane.pools.explain.explanation import Cause
from gpu_control_plane.pools.explanation_reads import ReplicaSet, read_refusals
from integration.flow.env import FlowEnv, pool_of, units_of
from integration.kinds import Pod
from integration.tenant import tenant
from waiting import until_async

FIRST, SECOND = "node-a-0000-18-00-0", "node-a-0000-2a-00-0"
FAST = ("--timing", "pools.pendingPodInterval=1s")


async def told(env: FlowEnv, pod: str) -> dict[str, str]:
    """What the pod was told, by cause and pool."""
    fields = f"regarding.name={pod},reason=WaitingForGPU"
    return {event.action: event.note for event in await env.client.list(Event, Selection("default", fields=fields))}


async def is_told(env: FlowEnv, pod: str, cause: Cause, words: str) -> None:
    async def holds() -> bool:
        return words in (await told(env, pod)).get(f"{cause}/training", "")

    await until_async(holds, saying=f"{pod} is told {cause}: {words}")


async def start(env: FlowEnv, name: str, cards: str, **spec: object) -> None:
    """A pod with more to it than `env.start_pod` makes."""
    container = {"name": "main", "image": "any", "resources": {"limits": {"gpu.deckhouse.io/training": cards}}}
    await env.client.create(Pod, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}, "default")


async def explain(env: FlowEnv, kind: str, name: str, *options: str, kubeconfig: Path | None = None) -> Any:
    """What `kubectl gpu explain` says, as a program reads it."""
    command = ("-m", "gpu_control_plane.cli", "explain", kind, name, *options, "-o", "json", "--kubeconfig")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, str(kubeconfig or env.cluster.kubeconfig), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return msgspec.json.decode(output)


def says(words: str, device: GPUDevice) -> bool:
    return words in (device.status.message or "")


async def cordon(env: FlowEnv, node: str, *, cordoned: bool) -> None:
    await env.client.patch(Node, node, {"spec": {"unschedulable": cordoned}})


async def test_a_pod_is_told_what_is_true(env: FlowEnv) -> None:
    await env.start_controller(*FAST)
    await env.add_nodes("node-a", "node-b")
    await env.devices_known(4)
    await env.add_pool("training")
    await env.approve(FIRST, "training")
    await env.pool_is("training", lambda pool: units_of(pool).available == 1)

    # A free card on a cordoned node, or on one that the pod does not select.
    await cordon(env, "node-a", cordoned=True)
    await env.start_pod("eager", "training")
    await is_told(env, "eager", Cause.CORDONED, "node-a is cordoned")
    assert "kubectl uncordon node-a" in (await told(env, "eager"))["NodeCordoned/training"]
    await cordon(env, "node-a", cordoned=False)
    await env.pod_is("eager", "Running")
    await env.end_pod("eager")
    await env.pool_is("training", lambda pool: units_of(pool).available == 1)
    await start(env, "picky", "1", nodeSelector={"disk": "ssd"})
    await is_told(env, "picky", Cause.SELECTOR, "disk=ssd")

    # Quantities are Kubernetes' own, and a card elsewhere does not help a pod that needs two on one node.
    await start(env, "greedy", "1k")
    await is_told(env, "greedy", Cause.TOO_MANY, "1,000 cards")
    await env.start_pod("pair", "training", 2)
    await is_told(env, "pair", Cause.AWAITING_APPROVAL, f"kubectl annotate gpudevice {SECOND} gpu.deckhouse.io/assign")

    # The command says the same, and who holds what.
    assert (await explain(env, "pod", "picky"))["cause"] == Cause.SELECTOR
    assert (await explain(env, "pod", "pair"))["cause"] == Cause.AWAITING_APPROVAL

    # The pool changes, and with it the cause; the Event follows.
    await env.start_pod("holder", "training")
    await env.pod_is("holder", "Running")
    await is_told(env, "picky", Cause.NO_FREE_UNIT, "0 free, 1 in use")
    taken = await explain(env, "pod", "picky")
    assert (taken["cause"], taken["pool"]) == (Cause.NO_FREE_UNIT, "training")
    assert "held by namespace: default 1" in taken["facts"]
    assert "waits for no card: Running on node-a" in (await explain(env, "pod", "holder"))["told"]

    # A restart tells nobody anything again; a pod that comes later is told.
    before = {pod: await told(env, pod) for pod in ("picky", "greedy", "pair")}
    env.kill_controller()
    await env.controller_ended()
    requests = len(env.proxy.requests)
    await env.start_controller(*FAST)
    await env.start_pod("later", "training")
    await is_told(env, "later", Cause.NO_FREE_UNIT, "0 free, 1 in use")
    assert {pod: await told(env, pod) for pod in before} == before
    about_events = [each for each in env.proxy.requests[requests:] if each.path.endswith("/events")]
    assert sum(each.method == "GET" for each in about_events) == 1
    assert sum(each.method == "POST" for each in about_events) == 1

    # Once the second card is approved, the pair has its node as soon as the holder has left.
    await env.end_pod("holder")
    await env.end_pod("later")
    await env.approve(SECOND, "training")
    await env.device_is(SECOND, lambda device: pool_of(device) == "training")
    await env.pod_is("pair", "Running")


async def test_a_card_says_what_was_asked_of_it_and_not_done(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_nodes("node-a")
    await env.devices_known(2)
    await env.add_pool("training", deviceSelector={"maxDevicesPerNode": 1})
    await env.pool_is("training", lambda pool: pool.status.phase)

    for mistake in ("trainnig", "trianing"):
        await env.approve(FIRST, mistake)
        await env.device_is(FIRST, functools.partial(says, f"approved for {mistake}, but"))
    await env.approve(FIRST, "training")
    await env.device_is(FIRST, lambda device: pool_of(device) == "training" and device.status.message is None)
    await env.approve(SECOND, "training")
    await env.device_is(SECOND, functools.partial(says, "maxDevicesPerNode"))
    await env.client.patch(GPUDevice, SECOND, {"metadata": {"labels": {Label.IGNORE: "yes"}}})
    await env.device_is(SECOND, functools.partial(says, "ignore=yes has no effect"))

    async def told_of(card: str) -> list[str]:
        events = await env.client.list(Event, Selection("default", fields=f"regarding.name={card}"))
        return sorted(event.note.split(":")[0] for event in events if event.reason.endswith("Ignored"))

    expected = {
        FIRST: [f"approved for {mistake}, but there is no such pool" for mistake in ("trainnig", "trianing")],
        SECOND: [
            "approved for training, but the pool takes no more cards from this node (maxDevicesPerNode)",
            "the label gpu.deckhouse.io/ignore=yes has no effect, since only `true` has one",
        ],
    }

    async def all_told() -> bool:
        return {card: await told_of(card) for card in expected} == expected

    await until_async(all_told, saying="an Event for each request that is not followed")
    findings = await explain(env, "device", SECOND)
    assert any("ignore=yes has no effect" in finding["sentence"] for finding in findings)
    assert any("it offers 1 unit" in finding["sentence"] for finding in await explain(env, "node", "node-a"))
    assert any("1 card not in the pool" in finding["sentence"] for finding in await explain(env, "pool", "training"))


async def test_a_workload_that_is_refused_and_a_tenant_are_answered(env: FlowEnv, tmp_path: Path) -> None:
    await env.start_controller(*FAST)
    await env.add_nodes("node-a")
    await env.devices_known(2)
    await env.add_pool("training", quotas=[{"namespace": "default", "units": 0}])
    await env.pool_is("training", lambda pool: find(pool.status.conditions, "QuotasHold"))
    container = {"name": "main", "image": "any", "resources": {"limits": {"gpu.deckhouse.io/training": "1"}}}
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "train"}}, "template": template}
    await env.client.create(ReplicaSet, {"metadata": {"name": "train-7c98"}, "spec": spec}, "default")

    async def refused() -> bool:
        return bool(await read_refusals(env.client, "train", "default"))

    await until_async(refused, saying="the quota refuses the pod")
    found = await explain(env, "pod", "train")
    assert (found["cause"], found["pool"]) == (Cause.QUOTA, "training")

    # Who may only see a namespace is shown what the controller has said there.
    async with tenant(env.client, env.cluster.kubeconfig, tmp_path) as somebody:
        own = {"metadata": {"name": "mine"}, "spec": {"containers": [container]}}
        await env.client.create(Pod, own, somebody.namespace)

        async def mine_told() -> bool:
            fields = "regarding.name=mine,reason=WaitingForGPU"
            return bool(await env.client.list(Event, Selection(somebody.namespace, fields=fields)))

        await until_async(mine_told, saying="the pod of the tenant is told")
        answer = await explain(env, "pod", "mine", "-n", somebody.namespace, kubeconfig=somebody.kubeconfig)
        assert answer["told"].startswith("the controller has told it: the pool training has no cards")
