"""How many cards each pool selects, and why those that it does not have are not in it, kept node by node.

A node's numbers come from the decision about its cards. They are in memory alone: until every node has been decided on
once, the numbers of no pool are complete.
"""

from collections import Counter

from gpu_control_plane.api.gpupool import MAX_WAITING, PoolCards, WaitingCards
from gpu_control_plane.pools.decide import SelectedCards
from gpu_control_plane.pools.pending_reasons import PendingReason


class CardTally:
    """The sum over all nodes, by pool."""

    def __init__(self) -> None:
        self._nodes: dict[str, SelectedCards] = {}
        self._pools: dict[str, Counter[PendingReason | None]] = {}

    def put(self, node: str, selected: SelectedCards) -> set[str]:
        """The cards of a node, as decided now; returns the pools whose numbers have changed."""
        before = self._nodes.get(node, {})
        self._nodes[node] = selected
        return self._move(before, selected)

    def forget(self, node: str) -> set[str]:
        """The node is gone."""
        return self._move(self._nodes.pop(node, {}), {})

    def clear(self) -> None:
        """Another process may have decided meanwhile."""
        self._nodes.clear()
        self._pools.clear()

    def knows(self, node: str) -> bool:
        return node in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, pool: str) -> PoolCards:
        """The numbers of a pool."""
        counted = self._pools.get(pool, Counter())
        waiting = {reason: cards for reason, cards in counted.items() if reason is not None}
        most = sorted(waiting.items(), key=lambda each: (-each[1], each[0]))[:MAX_WAITING]
        return PoolCards(
            selected=counted.total(),
            waiting=tuple(WaitingCards(reason=reason, cards=cards) for reason, cards in most),
        )

    def waiting_on(self, pool: str, reason: PendingReason) -> dict[str, int]:
        """On which nodes how many cards that the pool selects are not in it for this reason."""
        if not self._pools.get(pool, Counter())[reason]:
            return {}
        counts = ((node, selected[pool][reason]) for node, selected in self._nodes.items() if pool in selected)
        return {node: count for node, count in counts if count}

    def _move(self, before: SelectedCards, now: SelectedCards) -> set[str]:
        changed = {pool for pool in before.keys() | now.keys() if before.get(pool) != now.get(pool)}
        for pool in changed:
            counted = self._pools.setdefault(pool, Counter())
            counted.subtract(before.get(pool, Counter()))
            counted.update(now.get(pool, Counter()))
            self._pools[pool] = +counted
            if not self._pools[pool]:
                del self._pools[pool]
        return changed
