"""Why a pool has not enough for a pod: what it lacks, then what is in use. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpupool import Capacity, PoolPhase
from gpu_control_plane.api.names import Annotation, NodeCondition, PoolCondition, Reason
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.explain.snapshot import PodSnapshot, PoolView, free_units
from gpu_control_plane.pools.pending_reasons import PendingReason

_NOT_READY = {
    Reason.DRIVER_NOT_READY: Cause.DRIVER_MISSING,
    Reason.DRIVER_RELEASED: Cause.DRIVER_MISSING,
    Reason.DRIVER_HUNG: Cause.DRIVER_MISSING,
    Reason.CONFLICTING_DEVICE_PLUGIN: Cause.CONFLICTING_PLUGIN,
}
"""What it means for a pod that a node is not ready for pooling for this reason."""

_KEPT_OUT = {
    PendingReason.APPROVAL: Cause.AWAITING_APPROVAL,
    PendingReason.BURN_IN: Cause.BURN_IN,
    PendingReason.BURN_IN_FAILED: Cause.BURN_IN,
    PendingReason.HEALTH: Cause.CARD_FAULTED,
}
"""What it means for a pod that cards are not in the pool for this reason."""


class _Approval(msgspec.Struct, frozen=True):
    """Cards that a person could approve, on one node, so that the pod fits there."""

    cards: int
    """How many wait for approval, on all nodes."""
    command: str

    def __str__(self) -> str:
        wait = "1 card waits" if self.cards == 1 else f"{counted(self.cards, 'card')} wait"
        return f"{wait} for approval: `{self.command}`"


class PoolRequest:
    """The units of one pool that a pod asks for."""

    def __init__(self, snapshot: PodSnapshot, view: PoolView, resource: str, count: int) -> None:
        self._snapshot = snapshot
        self.view = view
        self.resource = resource
        self.count = count
        self.name = view.pool.name
        self._noun = "card" if view.pool.allocation.mode is Mode.EXCLUSIVE else "unit"

    def __str__(self) -> str:
        return f"{counted(self.count, self._noun)} of the pool {self.name}"

    def free_nodes(self) -> set[str]:
        """The nodes that have enough units free."""
        on_nodes = self.view.capacity.on_nodes(self.resource)
        return {node for node, capacity in on_nodes if free_units(capacity) >= self.count}

    def explained(self) -> Explanation | None:
        """Why the pool has not enough for the pod; None if one of its nodes has."""
        units = self.view.total(self.resource)
        return (
            self._pool() or self._no_units(units) or self._too_many() or self._not_offered(units) or self._taken(units)
        )

    def _pool(self) -> Explanation | None:
        pool = self.view.pool
        units = self.view.total(self.resource)
        if pool.deleting:
            return self._because(
                Cause.POOL_DELETED, f"the pool {self.name} is being deleted", "ask for the resource of another pool"
            )
        if pool.status.phase is PoolPhase.MAINTENANCE:
            said = find(pool.status.conditions, PoolCondition.READY)
            more = f": {said.message}" if said is not None and said.message else ""
            return self._because(
                Cause.MAINTENANCE,
                f"the pool {self.name} is in maintenance{more}",
                "the pod starts by itself when that is done",
                f"`kubectl describe gpupool {self.name}` shows how far it is",
            )
        said = find(pool.status.conditions, PoolCondition.CONFIGURED)
        if said is not None and said.status == FALSE and not units.used and not free_units(units):
            return self._because(
                Cause.MISCONFIGURED,
                f"the pool {self.name} is misconfigured: {said.message}",
                "it has to be mended by an administrator",
                f"`kubectl describe gpupool {self.name}`",
            )
        if not units.total and self.resource not in pool.names_with(pool.allocation):
            return self._because(
                Cause.MAINTENANCE,
                f"the pool {self.name} does not offer {self.resource} yet",
                "the pod starts by itself when the pool's cards have been divided anew",
            )
        return None

    def _no_units(self, units: Capacity) -> Explanation | None:
        if units.total:
            return None
        has_none = f"the pool {self.name} has no cards"
        cards = self.view.pool.status.cards
        if cards is None:
            return self._because(Cause.NO_CARDS, has_none, "it starts when the pool has cards", self._describe)
        if not cards.selected:
            return self._because(
                Cause.NO_CARDS,
                f"{has_none}: its deviceSelector selects none",
                "it starts when the pool has cards",
                f"correct spec.deviceSelector: `kubectl edit gpupool {self.name}`",
            )
        return self._kept_out(has_none, {PendingReason(each.reason): each.cards for each in cards.waiting})

    def _kept_out(self, sentence: str, waiting: Mapping[PendingReason, int]) -> Explanation | None:
        """The pool selects cards, and has none of them, for these reasons."""
        if PendingReason.APPROVAL in waiting:
            return self._too_many(sentence)
        if PendingReason.NODE_NOT_READY in waiting and (
            found := self._unready(sentence, self.view.waiting_on(PendingReason.NODE_NOT_READY))
        ):
            return found
        reasons = ", ".join(f"{counted(number, 'card')}: {reason.because}" for reason, number in waiting.items())
        cause = next((_KEPT_OUT[reason] for reason in waiting if reason in _KEPT_OUT), Cause.NO_CARDS)
        return self._because(
            cause,
            f"{sentence}; of those that it selects {reasons}",
            "it starts when the pool has cards",
            self._describe,
        )

    def _too_many(self, sentence: str = "") -> Explanation | None:
        """More than any node of the pool has, whatever becomes free."""
        if any(units.total >= self.count for _, units in self.view.capacity.on_nodes(self.resource)):
            return None
        totals = {node: units.total for node, units in self.view.capacity.on_nodes(self.resource)}
        most = max(totals.values(), default=0)
        if (approval := self._approval()) is not None:
            return self._because(
                Cause.AWAITING_APPROVAL,
                sentence or f"{self} asked for on one node, and no node of the pool has more than {most}",
                "it starts when cards are approved for the pool",
                str(approval),
            )
        waiting = self.view.waiting_on(PendingReason.APPROVAL)
        could = {node: totals.get(node, 0) + waiting[node] * self._units_of_a_card() for node in waiting}
        most = max(most, *could.values(), 0)
        return self._because(
            Cause.TOO_MANY,
            f"{self} asked for on one node, and no node of the pool has more than {most}",
            f"ask for at most {most} in a pod",
            "add a node with more cards to the pool",
        )

    def _not_offered(self, units: Capacity) -> Explanation | None:
        """The pool has cards, and no pod has or could have one."""
        if units.used or free_units(units):
            return None
        if units.faulted == units.total:
            return self._because(
                Cause.CARD_FAULTED,
                f"all {counted(units.total, self._noun)} of the pool {self.name} have faults",
                "it starts when cards have been mended",
                "`kubectl get gpudevices` shows which, `kubectl describe gpudevice NAME` why",
            )
        sentence = f"none of {counted(units.total, self._noun)} of the pool {self.name} is offered by its node"
        nodes = [node for node, here in self.view.capacity.on_nodes(self.resource) if here.total > here.faulted]
        if (found := self._unready(sentence, nodes)) is not None:
            return found
        worst = next(iter(self.view.capacity.worst), None)
        more = f" ({worst.name}: {worst.message})" if worst is not None else ""
        return self._because(
            Cause.NOT_OFFERED, f"{sentence}{more}", "it starts when a node offers its cards", self._describe
        )

    def _taken(self, units: Capacity) -> Explanation | None:
        free, approval = free_units(units), None
        if free >= self.count:
            largest = max((free_units(here) for _, here in self.view.capacity.on_nodes(self.resource)), default=0)
            if largest >= self.count:
                return None
            approval = self._approval()
            return self._because(
                Cause.NOT_ON_ONE_NODE,
                f"{self} asked for on one node: {free} are free, but at most {largest} on one node",
                f"ask for at most {largest}, or wait until more are free on one node",
                str(approval) if approval else "",
                facts=self._facts(),
            )
        missing = units.total - units.used - free - units.faulted
        parts = [f"{free} free", f"{units.used} in use", f"{units.faulted} faulted"]
        if missing:
            parts.append(f"{missing} not offered")
        approval = self._approval()
        return self._because(
            Cause.NO_FREE_UNIT,
            f"{self} asked for: {', '.join(parts)}, {units.total} in all",
            f"it starts when {self._noun}s become free",
            str(approval) if approval else "",
            facts=self._facts(),
        )

    def _unready(self, sentence: str, nodes: Collection[str]) -> Explanation | None:
        """What the first of these nodes that is not ready for pooling says of itself."""
        for name in sorted(nodes):
            state = self._snapshot.state(name)
            said = find(state.status.conditions, NodeCondition.READY_FOR_POOLING) if state is not None else None
            if said is not None and said.status == FALSE:
                others = len(nodes) - 1
                also = f", and {counted(others, 'other node')}" if others else ""
                return self._because(
                    _NOT_READY.get(Reason(said.reason), Cause.NODE_NOT_READY),
                    f"{sentence}: node {name}{also}: {said.message or said.reason}",
                    "it starts when the node is ready",
                    f"`kubectl describe gpunodestate {name}`",
                )
        return None

    def _approval(self) -> _Approval | None:
        """The fewest cards of one node whose approval would make room for the pod there."""
        waiting = self.view.waiting_on(PendingReason.APPROVAL)
        if not waiting:
            return None
        free = {node: free_units(here) for node, here in self.view.capacity.on_nodes(self.resource)}
        needed = {node: -(-(self.count - free.get(node, 0)) // self._units_of_a_card()) for node in waiting}
        for node in sorted(waiting, key=lambda node: (needed[node], node)):
            if 0 < needed[node] <= waiting[node]:
                names = " ".join(self.view.approvable(node)[: needed[node]]) or "NAME"
                command = f"kubectl annotate gpudevice {names} {Annotation.ASSIGNMENT}={self.name}"
                return _Approval(sum(waiting.values()), command)
        return None

    def _units_of_a_card(self) -> int:
        """What a card gives at least; how many instances fit on one depends on the card."""
        slices = self.view.pool.allocation.time_slice
        return slices.replicas if slices is not None else 1

    def _facts(self) -> tuple[str, ...]:
        """Who is ahead, and who holds the units."""
        facts: list[str] = []
        if (ahead := self._snapshot.ahead) is not None:
            facts.append(f"pods ahead that ask for the same, by priority and age: {ahead:,}")
        if holders := self._snapshot.holders.get(self.resource):
            most = sorted(holders.items(), key=lambda each: (-each[1], each[0]))
            facts.append("held by namespace: " + ", ".join(f"{name} {units}" for name, units in most))
        return tuple(facts)

    @property
    def _describe(self) -> str:
        return f"`kubectl describe gpupool {self.name}`"

    def _because(
        self, cause: Cause, sentence: str, user: str, admin: str = "", *, facts: tuple[str, ...] = ()
    ) -> Explanation:
        return Explanation(
            cause=cause, resource=self.resource, pool=self.name, sentence=sentence, user=user, admin=admin, facts=facts
        )
