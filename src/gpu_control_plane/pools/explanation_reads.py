"""What an explanation depends on, read from the API server: for commands, which have no caches, and what pods were
told."""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import UNSCHEDULED_FIELDS, WaitingPod
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.pools.explain.cluster import ClusterSnapshot
from gpu_control_plane.pools.explain.snapshot import PodSnapshot

UNSCHEDULED: Final = Selection(fields=UNSCHEDULED_FIELDS)
"""Pods without a node, in every namespace."""


class ReplicaSetCondition(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    status: str = ""
    message: str = ""


class ReplicaSetStatus(msgspec.Struct, frozen=True, kw_only=True):
    conditions: tuple[ReplicaSetCondition, ...] = ()


class ReplicaSet(Object, frozen=True):
    """What a Deployment makes pods by; it keeps why one could not be made."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")

    status: ReplicaSetStatus = ReplicaSetStatus()


async def read_pod_snapshot(client: Client, pod: WaitingPod) -> PodSnapshot:
    """Everything about the pools that the pod asks for. Needs the rights of somebody who may read nodes and cards."""
    pools = await client.list(GPUPool)
    asked = pod.extended_resources
    wanted = {pool.name for pool in pools for name in pool.resource_names if name in asked}
    cards: dict[str, GPUDevice] = {}
    for name in {"", *wanted} if wanted else ():
        found = await client.list(GPUDevice, Selection(fields=f"status.poolRef.name={name}"))
        cards |= {card.name: card for card in found}
    cluster = ClusterSnapshot(
        pools=pools,
        cards=cards,
        states={state.name: state for state in await client.list(GPUNodeState)} if wanted else {},
        nodes={node.name: node for node in await client.list(Node)} if wanted else {},
        waiting=await _waiting(client),
    )
    return cluster.pod(pod)


async def read_refusals(client: Client, name: str, namespace: str) -> list[str]:
    """Why pods of this name, or of a workload of this name, could not be made; the latest first."""
    sets = await client.list(ReplicaSet, Selection(namespace))
    found = [
        condition.message
        for each in sets
        for condition in each.status.conditions
        if condition.type == "ReplicaFailure" and condition.status == "True" and _related(name, each.name)
    ]
    events = await client.list(Event, Selection(namespace, fields="reason=FailedCreate"))
    about = [event for event in events if event.regarding is not None and _related(name, event.regarding.name)]
    return found + [event.note for event in sorted(about, key=lambda event: event.seen_at, reverse=True)]


async def read_told(client: Client, pod: WaitingPod | None = None) -> list[Event]:
    """What the controller has told this pod, or all pods that wait, the latest last."""
    fields = f"reason={EventReason.WAITING_FOR_CARDS}"
    if pod is not None:
        fields += f",regarding.uid={pod.metadata.uid}"
    events = await client.list(Event, Selection(pod.metadata.namespace if pod is not None else None, fields=fields))
    return sorted(events, key=lambda event: event.seen_at)


def _related(name: str, workload: str) -> bool:
    """Whether the workload has this name, makes a pod of this name, or is made by a Deployment of this name."""
    return name == workload or name.startswith(f"{workload}-") or workload.startswith(f"{name}-")


async def _waiting(client: Client) -> list[WaitingPod] | None:
    """The pods without a node; None for somebody who may not see those of others."""
    try:
        return await client.list(WaitingPod, UNSCHEDULED)
    except Forbidden:
        return None
