"""The pod webhook, called by a real API server, and a real scheduler that heeds what it adds.

Its failure policy is Ignore, so each test sees by what is on a pod that the webhook was called.
"""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.namespace import ResourceQuota
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Object, Resource, Selection
from gpu_control_plane.kube.errors import Forbidden
from integration.flow.env import FlowEnv
from integration.tenant import tenant
from waiting import until_async

NODES = tuple(f"node-{number}" for number in range(1, 9))
CARDS = 8
PODS = 16
LIMIT = 10
"""Of a quota with room for probes: it counts a pod for a moment after that has ended."""
EVERY_CARD: dict[str, object] = {"assignment": {"requireAnnotation": False}}


def pod(
    name: str, units: int = 1, resource: str = "gpu.deckhouse.io/training", requests: dict[str, str] | None = None
) -> dict[str, Any]:
    limits = {resource: str(units)}
    resources = {"limits": limits, "requests": {**(requests or {}), **limits}}
    container = {"name": "main", "image": "any", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def offers(env: FlowEnv, units: int) -> None:
    await env.pool_is("training", lambda pool: pool.status.units and pool.status.units.available == units)

    async def called() -> bool:
        """The webhook has its own view of pools, which may come a moment later."""
        return (await probe(env)).metadata.labels.get(Label.POOL) == "training"

    await until_async(called, saying="the API server calls the webhook")


async def probe(env: FlowEnv) -> "Reviewed":
    """What the webhook makes of a pod; it is never scheduled."""
    body = pod("probe")
    body["spec"]["schedulingGates"] = [{"name": "example.com/probe"}]
    made = await env.client.create(Reviewed, body, "default")
    await env.end_pod("probe")
    return made


async def test_what_waiting_cannot_cure_is_refused_and_the_rest_is_labelled(env: FlowEnv) -> None:
    await env.start_controller_with_webhooks()
    await env.add_nodes("node-a", "node-b", cards=2)
    await env.add_pool("training", **EVERY_CARD)
    await offers(env, 4)

    with pytest.raises(Forbidden, match=r"asks for 3 units of gpu.deckhouse.io/training, and no node has more than 2"):
        await env.client.create(Pod, pod("large", 3), "default")
    with pytest.raises(Forbidden, match=r"asks for gpu.deckhouse.io/trainig, which no GPU pool offers\."):
        await env.client.create(Pod, pod("typo", resource="gpu.deckhouse.io/trainig"), "default")

    made = await env.client.create(Pod, pod("fine"), "default")
    assert made.metadata.labels[Label.POOL] == "training"
    assert made.metadata.annotations[Annotation.RESERVATION]
    await env.pod_is("fine", "Running")

    other = await env.client.create(Pod, pod("other", resource="example.com/disk"), "default")
    assert Label.POOL not in other.metadata.labels


async def test_pods_are_packed_and_spread_as_the_pool_wishes(env: FlowEnv) -> None:
    await env.start_controller_with_webhooks()
    await env.add_nodes(*NODES, cards=CARDS)
    await env.add_pool("training", **EVERY_CARD)
    await offers(env, len(NODES) * CARDS)

    # Without the webhook the scheduler would spread pods with requests, and pack those without.
    packed = await placed(env, "packed", {"cpu": "100m", "memory": "64Mi"})
    assert len(set(packed)) <= 3, packed

    await change_scheduling(env, {"strategy": "Spread", "topologyKey": "kubernetes.io/hostname"})
    spread = await placed(env, "spread")
    assert sorted(spread) == sorted(2 * NODES), spread

    for number, node in enumerate(NODES):
        labels = {"topology.kubernetes.io/zone": f"zone-{min(number, 3)}"}  # the last zone has five of the nodes
        await env.client.patch(Node, node, {"metadata": {"labels": labels}})
    await change_scheduling(env, {"strategy": "Spread", "topologyKey": "topology.kubernetes.io/zone"})
    zones = [min(NODES.index(node), 3) for node in await placed(env, "zoned")]
    assert [zones.count(zone) for zone in range(4)] == [4, 4, 4, 4], zones


async def change_scheduling(env: FlowEnv, scheduling: dict[str, str]) -> None:
    await env.client.patch(GPUPool, "training", {"spec": {"scheduling": scheduling}})

    async def known() -> bool:
        """Whether the webhook reviews pods by it."""
        constraints = (await probe(env)).spec.topology_spread_constraints
        return any(each.topology_key == scheduling["topologyKey"] for each in constraints)

    await until_async(known, saying="the webhook knows the change")


async def placed(env: FlowEnv, name: str, requests: dict[str, str] | None = None) -> list[str]:
    """The nodes that sixteen pods with one card each were put on; they are gone afterwards."""
    names = [f"{name}-{number}" for number in range(PODS)]
    for each in names:
        await env.client.create(Pod, pod(each, requests=requests), "default")
    for each in names:
        await env.pod_is(each, "Running")
    pods = await env.client.list(Pod, Selection("default"))
    for each in names:
        await env.end_pod(each)
    await env.pool_is("training", lambda pool: pool.status.units and pool.status.units.used == 0)
    return [pod.spec.node_name for pod in pods if pod.name in names]


class _Constraint(msgspec.Struct, frozen=True, rename="camel"):
    topology_key: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    topology_spread_constraints: tuple[_Constraint, ...] = ()


class Reviewed(Object, frozen=True):
    resource: ClassVar[Resource] = Pod.resource

    spec: _Spec = _Spec()


async def counted(env: FlowEnv, units: int) -> bool:
    """Whether the quota of the pool counts so many units: what it counts follows the pods a moment later."""
    quota = await env.client.get(ResourceQuota, "gpu-pool-training", "default")
    return quota.status.used.get("requests.gpu.deckhouse.io/training") == str(units)


async def test_while_the_webhook_is_away_access_and_quotas_hold_and_afterwards_everything_is_counted(
    env: FlowEnv, tmp_path: Path
) -> None:
    await env.start_controller_with_webhooks()
    await env.add_nodes("node-a", cards=4)
    rules = {"access": {"namespaces": ["default"]}, "quotas": [{"namespace": "default", "units": LIMIT}]}
    await env.add_pool("training", **EVERY_CARD, **rules)
    await offers(env, 4)
    await env.client.create(Pod, pod("before"), "default")

    env.kill_controller()
    await env.controller_ended()
    without = await env.client.create(Reviewed, pod("meanwhile"), "default")
    assert Label.POOL not in without.metadata.labels, "nobody was there to label it"
    await env.pod_is("meanwhile", "Running")
    await until_async(lambda: counted(env, 2), saying="the quota counts both pods")
    with pytest.raises(Forbidden, match="exceeded quota: gpu-pool-training"):
        await env.client.create(Pod, pod("too-many", LIMIT - 1), "default")
    async with tenant(env.client, env.cluster.kubeconfig, tmp_path) as outsider:
        with pytest.raises(Forbidden, match=f"admits neither the namespace {outsider.namespace}"):
            await outsider.client.create(Pod, pod("foreign"), outsider.namespace)

    await env.start_controller_with_webhooks()
    await env.pool_is("training", lambda pool: pool.status.units and pool.status.units.used == 2)
    await offers(env, 2)
    assert (await env.client.create(Reviewed, pod("after"), "default")).metadata.labels[Label.POOL] == "training"
    await env.pod_is("after", "Running")
    await env.pool_is("training", lambda pool: pool.status.units and pool.status.units.used == 3)


async def test_the_history_of_a_card_names_who_approved_and_released_it(env: FlowEnv) -> None:
    await env.start_controller_with_webhooks()
    await env.add_nodes("node-a", cards=1)
    await env.devices_known(1)
    await env.add_pool("training")
    (name,) = await env.devices()

    async def recorded() -> bool:
        """The API server takes a moment to call the webhook, which has no time for pools that it does not know."""
        await env.approve(name, None)
        await env.approve(name, "training")
        return Annotation.APPROVED_BY in (await env.devices())[name].metadata.annotations

    await until_async(recorded, saying="the webhook records who approves")
    who = (await env.devices())[name].metadata.annotations[Annotation.APPROVED_BY]

    def said(device: GPUDevice) -> tuple[str, str]:
        latest = device.status.history[0]
        return latest.what, latest.who

    await env.device_is(name, lambda device: device.status.history and said(device) == ("Assigned to training", who))
    await env.approve(name, None)
    await env.device_is(name, lambda device: said(device) == ("Released from training", who))
