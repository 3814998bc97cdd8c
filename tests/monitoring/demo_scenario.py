"""What happens in the cluster on which dashboards are tried: a bit of everything, failures included."""

from datetime import timedelta
from typing import Any, ClassVar, Final

import msgspec
from examples.workloads import Deployment, deployment
from monitoring.promql import CONTROLLER

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.fleet.machines import add_nodes, edit_card
from gpu_control_plane.agent.simulated.machine import break_memory, new_machine, report_xid
from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpunodestate import Injection, Toolkit
from gpu_control_plane.api.names import DeviceCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import (
    NODE_LABEL,
    NodeFacts,
    NodeFeature,
    feature_name,
    node_feature,
)
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube import Client, FieldManager, Object, Resource, Selection
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.times import utc_now
from integration.kinds import Pod
from integration.rbac import ServiceAccount
from waiting import until_async

NODES: Final = {"h200-1": ("H200-141", 4), "h200-2": ("H200-141", 2), "l40s-1": ("L40S", 2)}
POOLS: Final[dict[str, dict[str, Any]]] = {
    "training": {
        "deviceSelector": {"include": {"products": ["*H200*"]}, "nodeSelector": {"matchLabels": {"pooled": "yes"}}},
        "assignment": {"requireAnnotation": False},
    },
    "inference": {
        "deviceSelector": {"include": {"products": ["*L40S*"]}},
        "assignment": {"requireAnnotation": False},
    },
}
RIVAL: Final = {"metadata": {"name": "rival"}, "spec": {"resource": {"name": "gpu.deckhouse.io/training"}}}
"""A younger pool that wants the name of another."""
NAMESPACES: Final = ("team-a", "team-b")
_OFF: Final = {"enabled": False}
_POLICY: Final[dict[str, Any]] = {
    "operator": {},
    "daemonsets": {},
    "driver": _OFF,
    "toolkit": _OFF,
    "devicePlugin": _OFF,
    "dcgm": _OFF,
    "nodeStatusExporter": _OFF,
    "migManager": _OFF,
    "gfd": {"repository": "registry.example", "image": "gfd", "version": "v1"},
    "validator": {"repository": "registry.example", "image": "validator", "version": "v1"},
    "dcgmExporter": {"enabled": True},
}
"""One operand runs, one cannot: it has no image."""
_DEPLOYMENT: Final = {"metadata": {"name": CONTROLLER}, **deployment("stand-in", "none", 0)}
"""The controller is a process here; kube-state-metrics has to see its Deployment all the same."""
_US: Final = FieldManager("test")


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


async def play_scenario(client: Client) -> None:
    """All of it, in order; returns when it has happened."""
    for name, (profile, cards) in NODES.items():
        await add_nodes(client, [name], new_machine(profile, cards))
    await client.patch(Node, "h200-1", {"metadata": {"labels": {"pooled": "yes"}}})
    for namespace in NAMESPACES:
        await client.create(Namespace, {"metadata": {"name": namespace}})
    await client.create(StoredClusterPolicy, {"metadata": {"name": "cluster-policy"}, "spec": _POLICY})
    await client.create(Deployment, _DEPLOYMENT, NAMESPACE)
    await _a_node_without_driver(client)
    await _a_node_that_does_not_report(client)
    for name, spec in POOLS.items():
        await client.create(GPUPool, {"metadata": {"name": name}, "spec": spec})
    await _cards_in(client, "training", 4)
    await _cards_in(client, "inference", 2)
    await client.create(GPUPool, RIVAL)
    await until_async(lambda: _takes_pods(client))
    await _pod(client, "train-0", "team-a", "training", 3)
    await _pod(client, "chat-0", "team-b", "inference", 1)
    await _pod(client, "train-1", "team-b", "training", 8)
    await until_async(lambda: _used(client, 4), within=120, saying="four cards in use")
    await _ray(client)
    await _a_card_that_fails_its_test(client)
    free = next(device for device in await client.list(GPUDevice, _on("h200-1")) if not device.status.used_by)
    await edit_card(client, free.name, lambda machine, address: report_xid(machine, address, 13))
    await edit_card(client, free.name, lambda machine, address: report_xid(machine, address, 79))
    await edit_card(client, free.name, break_memory)


def _on(node: str) -> Selection:
    return Selection(fields=f"spec.nodeName={node}")


async def _ray(client: Client) -> None:
    """What waits for more cards than there are, and what is written here as if it had been: MultiKueue's objects are
    left alone by our operator."""
    waiting = _cluster({"gpu.deckhouse.io/training": "8"})
    job = {"entrypoint": "true", "rayClusterSpec": waiting}
    await client.create(RayCluster, {"metadata": {"name": "eval"}, "spec": waiting}, "team-a")
    await client.create(RayJob, {"metadata": {"name": "train"}, "spec": job}, "team-a")
    await client.create(
        RayService,
        {"metadata": {"name": "chat"}, "spec": {"rayClusterConfig": waiting, "serveConfigV2": "{}"}},
        "team-a",
    )
    theirs, now = {"managedBy": MANAGED_BY_MULTIKUEUE}, f"{utc_now() + timedelta(seconds=20):%Y-%m-%dT%H:%M:%SZ}"
    begun = f"{utc_now():%Y-%m-%dT%H:%M:%SZ}"

    def said(kind: str) -> dict[str, str]:
        return {"type": kind, "status": "True", "reason": "Demo", "message": "", "lastTransitionTime": now}

    await client.create(RayCluster, {"metadata": {"name": "done"}, "spec": {**_cluster({}), **theirs}}, "team-a")
    await _says(client, RayCluster, "done", conditions=[said("RayClusterProvisioned")])
    ended = {**job, **theirs, "rayClusterSpec": _cluster({})}
    await client.create(RayJob, {"metadata": {"name": "ended"}, "spec": ended}, "team-a")
    await _says(client, RayJob, "ended", jobDeploymentStatus="Complete", startTime=begun, endTime=now)
    served = {"rayClusterConfig": _cluster({}), **theirs}
    await client.create(RayService, {"metadata": {"name": "upgraded"}, "spec": served}, "team-a")
    await _says(client, RayService, "upgraded", conditions=[said("Ready"), said("UpgradeInProgress")])


def _cluster(limits: dict[str, str]) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray", "image": "any", "resources": {"limits": limits}}]}}
    head = {"spec": {"containers": [{"name": "ray", "image": "any"}]}}
    group = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": template}
    return {"headGroupSpec": {"template": head}, "workerGroupSpecs": [group]}


async def _says(client: Client, kind: type[Object], name: str, **status: Any) -> None:
    await client.patch(kind, name, {"status": status}, namespace="team-a", subresource="status")


async def _a_node_without_driver(client: Client) -> None:
    name = "no-driver"
    await client.create(Node, {"metadata": {"name": name}})
    facts = NodeFacts(bus_cards=1, toolkit=Toolkit(injection=Injection.CDI))
    spec = node_feature(name, facts, (h200(name, 0, 1),))
    body = {"metadata": {"labels": {NODE_LABEL: name}}, "spec": msgspec.to_builtins(spec)}
    await client.apply(NodeFeature, feature_name(name), body, manager=_US, namespace=NAMESPACE)


async def _a_node_that_does_not_report(client: Client) -> None:
    """It has shown more cards on its bus than it reports."""
    name = "half-known"
    await client.create(Node, {"metadata": {"name": name}})
    spec = node_feature(name, NodeFacts(bus_cards=2), (h200(name, 0, 1),))
    body = {"metadata": {"labels": {NODE_LABEL: name}}, "spec": msgspec.to_builtins(spec)}
    await client.apply(NodeFeature, feature_name(name), body, manager=_US, namespace=NAMESPACE)


async def _a_card_that_fails_its_test(client: Client) -> None:
    """Simulated nodes test no cards: the status their agent would write is written here."""
    found: list[GPUDevice] = []

    async def described() -> bool:
        found[:] = [card for card in await client.list(GPUDevice, _on("h200-2")) if card.status.hardware is not None]
        return bool(found)

    await until_async(described, saying="the cards of h200-2 are described")
    card = found[0]
    assert card.status.hardware is not None
    failed = condition((), DeviceCondition.BURNED_IN, False, Reason.MEMORY_ERRORS, "Replace it.", now=utc_now())
    record = {"uuid": card.status.hardware.uuid, "endedAt": f"{utc_now():%Y-%m-%dT%H:%M:%SZ}"}
    status = {"conditions": [msgspec.to_builtins(failed)], "burnIn": record}
    await client.apply(GPUDevice, card.name, {"status": status}, manager=_US, subresource="status")


async def _pod(client: Client, name: str, namespace: str, pool: str, cards: int) -> None:
    container = {"name": "main", "image": "any", "resources": {"limits": {f"gpu.deckhouse.io/{pool}": str(cards)}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    await client.create(Pod, {"metadata": {"name": name}, "spec": spec}, namespace)


async def _takes_pods(client: Client) -> bool:
    """Pods are refused until the controller-manager has made the service accounts they run as."""
    accounts = await client.list(ServiceAccount, Selection(fields="metadata.name=default"))
    return {account.metadata.namespace for account in accounts} >= set(NAMESPACES)


async def _cards_in(client: Client, pool: str, count: int) -> None:
    async def there() -> bool:
        found = await client.get(GPUPool, pool)
        return found.status.units is not None and found.status.units.available == count

    await until_async(there, within=120, saying=f"{count} cards on offer in {pool}")


async def _used(client: Client, count: int) -> bool:
    return sum(bool(device.status.used_by) for device in await client.list(GPUDevice)) == count
