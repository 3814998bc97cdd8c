"""A cluster as commands and the console read it, from which any waiting pod is explained. Pure.

The controller has the same from its caches, kept up to date by what changes; here everything is counted once.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.explain.snapshot import PodSnapshot, PoolView, approvable_cards
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.rules.device_selection import selects

_LAST: Final = datetime.max.replace(tzinfo=UTC)


class ClusterSnapshot:
    """Pools, cards, nodes and the pods that wait, at one moment. Pools are counted when a pod asks for them."""

    def __init__(
        self,
        *,
        pools: Iterable[GPUPool],
        cards: Mapping[str, GPUDevice],
        states: Mapping[str, GPUNodeState],
        nodes: Mapping[str, Node],
        waiting: Collection[WaitingPod] | None,
    ) -> None:
        """`waiting` is None for somebody who may not see the pods of others."""
        self._by_resource = {name: pool for pool in pools for name in pool.resource_names}
        self._cards = cards
        self._states = states
        self._nodes = nodes
        self._waiting = waiting
        self._views: dict[str, PoolView] = {}
        self._by_pool: dict[str, dict[str, list[GPUDevice]]] = defaultdict(lambda: defaultdict(list))
        self._holders: dict[str, Counter[str]] = defaultdict(Counter)
        for card in cards.values():
            if card.status.pool_ref is not None:
                self._by_pool[card.status.pool_ref.name][card.spec.node_name].append(card)
            for user in card.status.used_by:
                self._holders[user.resource][user.namespace] += user.units

    def pod(self, pod: WaitingPod) -> PodSnapshot:
        """Everything about the pools that the pod asks for."""
        asked = pod.extended_resources
        wanted = {name: self._by_resource[name] for name in asked if name in self._by_resource}
        return PodSnapshot(
            pod=pod,
            pools={name: self._view(pool) for name, pool in wanted.items()},
            resources=self._by_resource.keys,
            node=self._nodes.get,
            state=self._states.get,
            ahead=self._ahead(pod, wanted.keys()),
            holders=self._holders,
        )

    def _ahead(self, pod: WaitingPod, wanted: Collection[str]) -> int | None:
        """Pods that ask for the same and come first."""
        if self._waiting is None:
            return None
        place = _place(pod)
        return sum(
            _place(each) < place and not each.extended_resource_names.isdisjoint(wanted) for each in self._waiting
        )

    def _view(self, pool: GPUPool) -> PoolView:
        if pool.name not in self._views:
            self._views[pool.name] = self._counted(pool)
        return self._views[pool.name]

    def _counted(self, pool: GPUPool) -> PoolView:
        capacity = PoolCapacity()
        for node, held in self._by_pool[pool.name].items():
            capacity.put(node, node_capacity(pool, node, held, self._states.get(node)))
        return PoolView(
            pool=pool,
            capacity=capacity,
            waiting_on=partial(self._waiting_on, pool),
            approvable=partial(self._approvable, pool),
        )

    def _waiting_on(self, pool: GPUPool, reason: PendingReason) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for name, state in self._states.items():
            pending = state.status.pools.pending if state.status.pools is not None else ()
            cards = (self._cards.get(card.inventory_id) for card in pending if card.reason == reason)
            counts[name] += sum(card is not None and self._selects(pool, card) for card in cards)
        return +counts

    def _approvable(self, pool: GPUPool, node: str) -> list[str]:
        state = self._states.get(node)
        cards = approvable_cards(state, self._cards.get) if state is not None else []
        return [card.name for card in cards if self._selects(pool, card)]

    def _selects(self, pool: GPUPool, card: GPUDevice) -> bool:
        node = self._nodes.get(card.spec.node_name)
        return node is not None and selects(pool, card, node.metadata.labels)


def _place(pod: WaitingPod) -> tuple[int, datetime, str]:
    return -pod.spec.priority, pod.metadata.creation_timestamp or _LAST, pod.metadata.uid
