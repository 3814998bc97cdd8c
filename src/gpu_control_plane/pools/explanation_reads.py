"""What an explanation depends on, read from the API server: for commands, which have no caches, and what pods were
told."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.explain.snapshot import PodSnapshot, PoolView, approvable_cards
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.rules.device_selection import selects

UNSCHEDULED: Final = Selection(fields="status.phase=Pending,spec.nodeName=")
"""Pods without a node, in every namespace: the only ones that can wait for a card."""

_NOBODY: Final = datetime.max.replace(tzinfo=UTC)


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
    by_resource = {name: pool for pool in pools for name in pool.resource_names}
    wanted = {name: by_resource[name] for name in pod.extended_resources if name in by_resource}
    cards: list[GPUDevice] = []
    for name in {"", *(pool.name for pool in wanted.values())} if wanted else ():
        cards += await client.list(GPUDevice, Selection(fields=f"status.poolRef.name={name}"))
    cluster = _Cluster(
        cards=cards,
        states={state.name: state for state in await client.list(GPUNodeState)} if wanted else {},
        nodes={node.name: node for node in await client.list(Node)} if wanted else {},
    )
    return PodSnapshot(
        pod=pod,
        pools={name: cluster.view(pool) for name, pool in wanted.items()},
        resources=by_resource.keys,
        node=cluster.nodes.get,
        state=cluster.states.get,
        ahead=await _ahead(client, pod, wanted),
        holders=cluster.holders(),
    )


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


async def _ahead(client: Client, pod: WaitingPod, wanted: Collection[str]) -> int | None:
    """Pods that ask for the same and come first; None for somebody who may not see them."""
    try:
        waiting = await client.list(WaitingPod, UNSCHEDULED)
    except Forbidden:
        return None
    place = _place(pod)
    return sum(_place(each) < place and bool(each.extended_resources.keys() & set(wanted)) for each in waiting)


def _place(pod: WaitingPod) -> tuple[int, datetime, str]:
    return -pod.spec.priority, pod.metadata.creation_timestamp or _NOBODY, pod.metadata.uid


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of some pools and those in none, and all nodes."""

    cards: Sequence[GPUDevice]
    states: Mapping[str, GPUNodeState]
    nodes: Mapping[str, Node]

    def view(self, pool: GPUPool) -> PoolView:
        capacity = PoolCapacity()
        by_node: dict[str, list[GPUDevice]] = defaultdict(list)
        for card in self.cards:
            if card.status.pool_ref is not None and card.status.pool_ref.name == pool.name:
                by_node[card.spec.node_name].append(card)
        for node, held in by_node.items():
            capacity.put(node, node_capacity(pool, node, held, self.states.get(node)))
        return PoolView(
            pool=pool,
            capacity=capacity,
            waiting_on=partial(self._waiting_on, pool),
            approvable=partial(self._approvable, pool),
        )

    def holders(self) -> dict[str, Counter[str]]:
        """Units held, by resource and namespace."""
        held: dict[str, Counter[str]] = defaultdict(Counter)
        for card in self.cards:
            for user in card.status.used_by:
                held[user.resource][user.namespace] += user.units
        return held

    def _waiting_on(self, pool: GPUPool, reason: PendingReason) -> Mapping[str, int]:
        device = self._device()
        counts: Counter[str] = Counter()
        for name, state in self.states.items():
            pending = state.status.pools.pending if state.status.pools is not None else ()
            cards = (device(card.inventory_id) for card in pending if card.reason == reason)
            counts[name] += sum(card is not None and self._selects(pool, card) for card in cards)
        return +counts

    def _approvable(self, pool: GPUPool, node: str) -> Sequence[str]:
        state = self.states.get(node)
        cards = approvable_cards(state, self._device()) if state is not None else []
        return [card.name for card in cards if self._selects(pool, card)]

    def _selects(self, pool: GPUPool, card: GPUDevice) -> bool:
        node = self.nodes.get(card.spec.node_name)
        return node is not None and selects(pool, card, node.metadata.labels)

    def _device(self) -> Callable[[str], GPUDevice | None]:
        return {card.name: card for card in self.cards}.get
