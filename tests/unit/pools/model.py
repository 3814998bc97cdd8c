"""A model of one node and its cards: objects as values, an agent that carries out its assignments, and pods.

The controller's writes are applied one by one, so that a test can let it die between any two of them.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.examples import device as example_device
from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.gpudevice import DeviceStatus, GPUDevice, User
from gpu_control_plane.api.gpunodestate import (
    Assignment,
    GPUNodeState,
    NodeStateSpec,
    NodeStateStatus,
    Plugin,
    PluginResource,
)
from gpu_control_plane.api.gpupool import GPUPool, PoolStatus
from gpu_control_plane.api.names import Annotation, DeviceCondition, NodeCondition
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.kube.objects import Condition, ObjectMeta
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.decide import CardPlan, NodePlan, decide
from gpu_control_plane.pools.ignored_requests import status_message
from gpu_control_plane.pools.maintenance import progress
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.snapshot import Snapshot
from gpu_control_plane.rules.pool_validation import faults

NODE = "worker-3"
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def holds(kind: str, *, status: bool) -> Condition:
    return Condition(
        type=kind, status="True" if status else "False", reason="Because", message="it is so", last_transition_time=NOW
    )


class NodeModel:
    """One node, its objects and its pods."""

    def __init__(self) -> None:
        self.labels: dict[str, str] | None = {}
        self.devices: dict[str, GPUDevice] = {}
        self.pools: dict[str, GPUPool] = {}
        software = node_state(NODE).status
        status = NodeStateStatus(driver=software.driver, toolkit=software.toolkit)
        self.state = GPUNodeState(metadata=ObjectMeta(name=NODE, generation=1), status=status)
        self.report_observed = True
        """Whether inventory has taken the latest report in."""
        self.holders: dict[str, list[str]] = {}
        """Cards of which pods hold units, and for each such unit the resource under which it was given."""
        self.granted: dict[str, Allocation] = {}
        """How each of these cards was divided when its units were given."""
        self.set_ready(ready=True)

    # What people, the node and the hardware do.

    def set_ready(self, *, ready: bool) -> None:
        complete = holds(NodeCondition.INVENTORY_COMPLETE, status=True)
        conditions = (holds(NodeCondition.READY_FOR_POOLING, status=ready), complete)
        self.state = replace(self.state, status=replace(self.state.status, conditions=conditions))

    def add_card(self, index: int) -> None:
        new = example_device(node=NODE, index=index, pool=None)
        if new.name in self.devices:
            return
        status = DeviceStatus(hardware=new.status.hardware, conditions=(holds(DeviceCondition.HEALTHY, status=True),))
        self.devices[new.name] = replace(new, status=status)
        self._count()

    def remove_card(self, name: str) -> None:
        """The card is pulled; its pods go with it."""
        del self.devices[name]
        self.holders.pop(name, None)
        self.granted.pop(name, None)
        self._count()

    def _count(self) -> None:
        """Inventory writes how many cards the node has."""
        self.state = replace(self.state, status=replace(self.state.status, device_count=len(self.devices)))

    def annotate(self, name: str, **annotations: str | None) -> None:
        keys = {"assignment": Annotation.ASSIGNMENT, "hold": Annotation.HOLD, "reason": Annotation.REASON}
        device = self.devices[name]
        held: dict[str, str | None] = {**device.metadata.annotations}
        held |= {keys[key]: value for key, value in annotations.items()}
        kept = {key: value for key, value in held.items() if value is not None}
        self.devices[name] = replace(device, metadata=replace(device.metadata, annotations=kept))

    def set_healthy(self, name: str, *, healthy: bool) -> None:
        device = self.devices[name]
        conditions = (holds(DeviceCondition.HEALTHY, status=healthy),)
        self.devices[name] = replace(device, status=replace(device.status, conditions=conditions))

    def delete_pool(self, name: str) -> None:
        pool = self.pools[name]
        self.pools[name] = replace(pool, metadata=replace(pool.metadata, deletion_timestamp=NOW))

    def start_pod(self, name: str) -> None:
        """A pod gets a unit of a card that is on offer, as the kubelet would give it."""
        resource = self.offered()[name]
        self.granted[name] = self._orders()[name].allocation
        self.holders.setdefault(name, []).append(resource)
        self._report_users(name)

    def end_pod(self, name: str) -> None:
        self.holders[name].pop()
        if not self.holders[name]:
            del self.holders[name], self.granted[name]
        self._report_users(name)

    def _report_users(self, name: str) -> None:
        device = self.devices[name]
        users = tuple(
            User(namespace="default", pod=f"pod-{number}", container="main", resource=resource, units=1)
            for number, resource in enumerate(self.holders.get(name, ()))
        )
        self.devices[name] = replace(device, status=replace(device.status, used_by=users))

    @property
    def plugin(self) -> Plugin:
        return self.state.status.plugin or Plugin(observed_generation=0)

    def offered(self) -> dict[str, str]:
        """Cards of which a new pod could get a unit, and as what."""
        orders = self._orders()
        free: dict[str, str] = {}
        for listed in (resource for resource in self.plugin.resources if resource.healthy):
            for name in listed.inventory_ids:
                units = {each.name: each.units for each in orders[name].resources} if name in orders else {}
                held = self.holders.get(name, []).count(listed.name)
                if name in self.devices and held < units.get(listed.name, 0) and self._serves(name):
                    free[name] = listed.name
        return free

    # What the agent does.

    def agent_acts(self) -> None:
        """Carry out the orders: a card is offered as what was ordered unless pods hold it as something else."""
        listed: dict[str, list[tuple[str, int, int]]] = {}
        for name in sorted(self._orders().keys() | (self.holders.keys() & self.devices.keys())):
            if self._serves(name):
                for each in self._orders()[name].resources:
                    listed.setdefault(each.name, []).append((name, each.units, each.units))
            else:
                for resource in sorted(set(self.holders.get(name, ()))):
                    listed.setdefault(resource, []).append((name, self.holders[name].count(resource), 0))
        resources = tuple(
            PluginResource(
                name=resource,
                units=sum(units for _, units, _ in cards),
                healthy=sum(healthy for _, _, healthy in cards),
                inventory_ids=tuple(name for name, _, _ in cards),
            )
            for resource, cards in sorted(listed.items())
        )
        plugin = Plugin(observed_generation=self.state.metadata.generation, resources=resources)
        self.state = replace(self.state, status=replace(self.state.status, plugin=plugin))

    def _serves(self, name: str) -> bool:
        """Whether the card is offered as ordered: no pod holds it as something else."""
        order = self._orders().get(name)
        if order is None or self.granted.get(name, order.allocation) != order.allocation:
            return False
        return set(self.holders.get(name, ())) <= {each.name for each in order.resources}

    def _orders(self) -> dict[str, Assignment]:
        return {order.inventory_id: order for order in self.state.spec.assignments}

    # What the controller does.

    def plan(self) -> NodePlan:
        return decide(self.snapshot())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            node=NODE,
            labels=self.labels,
            state=self.state,
            devices=tuple(self.devices.values()),
            pools=self.pools,
            faults=faults(self.pools.values()),
            report_observed=self.report_observed,
            now=NOW,
        )

    def controller_acts(self, *, dies_after: int | None = None) -> int:
        """Carry the plan out, write by write; returns how many writes there were."""
        self.pools_act()
        plan = self.plan()
        writes: list[Callable[[], None]] = [
            partial(self._write_card, card) for card in plan.cards if self._card_differs(card)
        ]
        if plan.assignments != self.state.spec.assignments:
            writes.append(partial(self._write_assignments, plan))
        if plan.complete and plan.pools != self.state.status.pools:
            writes.append(partial(self._write_pools, plan))
        for write in writes[:dies_after]:
            write()
        for name in [pool.name for pool in self.pools.values() if pool.deleting and self._unclaimed(pool.name)]:
            del self.pools[name]
        return len(writes)

    def pools_act(self, now: datetime = NOW) -> None:
        """Write how each pool's cards are to be divided, and how far a change of that is."""
        for pool in tuple(self.pools.values()):
            stage = progress(pool, self.capacity(pool), now)
            status = PoolStatus(allocation=stage.allocation, maintenance=stage.maintenance)
            self.pools[pool.name] = replace(pool, status=status)

    def capacity(self, pool: GPUPool) -> PoolCapacity:
        cards = [device for device in self.devices.values() if self.claim(device.name) == pool.name]
        capacity = PoolCapacity()
        capacity.put(NODE, node_capacity(pool, NODE, cards, self.state))
        return capacity

    def settle(self) -> None:
        """Let controller and agent work until neither has anything to do."""
        for _ in range(20):
            before = (self.devices.copy(), self.pools.copy(), self.state)
            self.controller_acts()
            self.agent_acts()
            if before == (self.devices, self.pools, self.state):
                return
        raise AssertionError("controller and agent never settle")

    def claim(self, name: str) -> str | None:
        reference = self.devices[name].status.pool_ref
        return reference.name if reference else None

    def capacity_adds_up(self, *, exactly: bool) -> None:
        for pool in self.pools.values():
            cards = [device for device in self.devices.values() if self.claim(device.name) == pool.name]
            for units in self.capacity(pool).resources(()):
                parts = units.used + units.reserved + units.available + units.faulted
                assert parts <= units.total
                if exactly and all(self._serves(card.name) for card in cards):
                    assert parts == units.total

    def _card_differs(self, card: CardPlan) -> bool:
        status = card.device.status
        claim = status.pool_ref.name if status.pool_ref else None
        changes = card.approve or card.withdraw or card.change or card.tested or card.divided or card.take_reason
        desired = (card.state, card.pool, card.pending, status_message(card.ignored))
        return bool(changes or desired != (status.state, claim, status.pending_reason, status.message))

    def _write_card(self, card: CardPlan) -> None:
        if card.approve or card.withdraw:
            self.annotate(card.device.name, assignment=card.approve)
        device = self.devices[card.device.name]
        reference = PoolRef(name=card.pool) if card.pool else None
        status = replace(
            device.status,
            state=card.state,
            pool_ref=reference,
            pending_reason=card.pending,
            message=status_message(card.ignored),
            history=card.history,
        )
        self.devices[device.name] = replace(device, status=status)
        if card.take_reason:
            self.annotate(device.name, reason=None)

    def _write_assignments(self, plan: NodePlan) -> None:
        generation = self.state.metadata.generation + 1
        self.state = replace(
            self.state,
            metadata=replace(self.state.metadata, generation=generation),
            spec=NodeStateSpec(assignments=plan.assignments),
        )

    def _write_pools(self, plan: NodePlan) -> None:
        self.state = replace(self.state, status=replace(self.state.status, pools=plan.pools))

    def _unclaimed(self, pool: str) -> bool:
        return not any(
            self.claim(name) == pool or device.metadata.annotations.get(Annotation.ASSIGNMENT) == pool
            for name, device in self.devices.items()
        )
