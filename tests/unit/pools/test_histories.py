"""Random histories of cards, pools, approvals, faults, pods and crashes never break what pools promise."""

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpupool import GPUPool, PoolAssignment, PoolResource, PoolSpec
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.selection import selects
from gpu_control_plane.rules.pool_validation import faults
from unit.pools.model import NOW, World

_POOLS = ("a", "b", "c")
_indices = st.integers(0, 3)
_selectors = st.sampled_from(
    [
        None,
        DeviceSelector(max_devices_per_node=1),
        DeviceSelector(max_devices_per_node=2),
        DeviceSelector(include=DeviceCriteria(products=("*H200*",))),
        DeviceSelector(include=DeviceCriteria(products=("*A100*",))),
        DeviceSelector(node_selector=LabelSelector(match_labels={"zone": "a"})),
    ]
)
_assignments = st.sampled_from(
    [
        PoolAssignment(),
        PoolAssignment(require_annotation=False),
        PoolAssignment(auto_approve_selector=LabelSelector(match_labels={"trusted": "yes"})),
    ]
)


class Histories(RuleBasedStateMachine):
    """Anything may happen at any moment; the controller and the agent act now and then, and the controller may die."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.born = 0
        for index in range(3):
            self.world.add_card(index)
        for name in ("a", "b"):
            self.a_pool_is_written(name, None, PoolAssignment(), shared=False)

    def _card(self, index: int) -> str | None:
        names = sorted(self.world.devices)
        return names[index % len(names)] if names else None

    @rule(index=_indices)
    def a_card_appears(self, index: int) -> None:
        """Also one that was pulled before, while its old order still stands."""
        self.world.add_card(index)

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices)
    def a_card_is_pulled(self, index: int) -> None:
        self.world.remove_card(self._card(index) or "")

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices)
    def a_card_is_swapped(self, index: int) -> None:
        """What inventory does about it: the approval is dropped."""
        self.world.annotate(self._card(index) or "", assignment=None)

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices, pool=st.sampled_from((*_POOLS, "unknown", None)))
    def a_person_approves(self, index: int, pool: str | None) -> None:
        self.world.annotate(self._card(index) or "", assignment=pool)

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices, value=st.sampled_from(("being moved", None)))
    def a_person_holds(self, index: int, value: str | None) -> None:
        self.world.annotate(self._card(index) or "", hold=value)

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices, labels=st.sampled_from(({Label.IGNORE: "true"}, {Label.IGNORE: ""}, {"trusted": "yes"})))
    def a_person_labels(self, index: int, labels: dict[str, str]) -> None:
        device = self.world.devices[self._card(index) or ""]
        metadata = replace(device.metadata, labels={**device.metadata.labels, **labels})
        self.world.devices[device.name] = replace(device, metadata=metadata)

    @precondition(lambda self: self.world.devices)
    @rule(index=_indices, healthy=st.booleans())
    def health_changes(self, index: int, healthy: bool) -> None:
        self.world.set_healthy(self._card(index) or "", healthy=healthy)

    @rule(ready=st.booleans())
    def readiness_changes(self, ready: bool) -> None:
        self.world.set_ready(ready=ready)

    @rule(labels=st.sampled_from((None, {}, {"zone": "a"})))
    def the_node_goes_or_comes(self, labels: dict[str, str] | None) -> None:
        self.world.labels = labels

    @rule(name=st.sampled_from(_POOLS), selector=_selectors, assignment=_assignments, shared=st.booleans())
    def a_pool_is_written(
        self, name: str, selector: DeviceSelector | None, assignment: PoolAssignment, shared: bool
    ) -> None:
        known = self.world.pools.get(name)
        if known is not None and known.deleting:
            return
        self.born += 1
        created = known.metadata.creation_timestamp if known else NOW + timedelta(seconds=self.born)
        resource = PoolResource(name="gpu.example.com/shared") if shared else None
        spec = PoolSpec(device_selector=selector, assignment=assignment, resource=resource)
        if known is not None:
            # The resource of a pool in use keeps its name, as with the agent's real promise a change would be a move.
            spec = replace(spec, resource=known.spec.resource)
        self.world.pools[name] = GPUPool(metadata=ObjectMeta(name=name, creation_timestamp=created), spec=spec)

    @precondition(lambda self: self.world.pools)
    @rule(name=st.sampled_from(_POOLS))
    def a_pool_is_deleted(self, name: str) -> None:
        if name in self.world.pools:
            self.world.delete_pool(name)

    @precondition(lambda self: self.world.offered())
    @rule(index=_indices)
    def a_pod_starts(self, index: int) -> None:
        offered = sorted(self.world.offered())
        self.world.start_pod(offered[index % len(offered)])

    @precondition(lambda self: self.world.holders)
    @rule(index=_indices)
    def a_pod_ends(self, index: int) -> None:
        holders = sorted(self.world.holders)
        self.world.end_pod(holders[index % len(holders)])

    @rule()
    def the_agent_acts(self) -> None:
        self.world.agent_acts()

    @rule()
    def the_controller_acts(self) -> None:
        self.world.controller_acts()

    @rule(writes=st.integers(0, 4))
    def the_controller_dies(self, writes: int) -> None:
        self.world.controller_acts(dies_after=writes)

    @rule()
    def everything_settles(self) -> None:
        self.world.settle()
        self._what_settled_worlds_promise()

    def _what_settled_worlds_promise(self) -> None:
        world = self.world
        for name, device in world.devices.items():
            claim = world.claim(name)
            if claim is None or name in world.holders:
                continue
            pool = world.pools[claim]
            assert device.metadata.annotations.get(Annotation.ASSIGNMENT) == claim, "assigned without approval"
            assert device.metadata.labels.get(Label.IGNORE) != "true", "an ignored card is in a pool"
            assert not pool.deleting
            assert claim not in faults(world.pools.values())
            if world.labels is not None:
                assert selects(pool, device, world.labels), "assigned without being selected"
        for name, pool in world.pools.items():
            selector = pool.spec.device_selector
            limit = selector.max_devices_per_node if selector else None
            idle = [card for card in world.devices if world.claim(card) == name and card not in world.holders]
            assert limit is None or len(idle) <= limit, "more cards of a node than the pool may have"
        if world.labels is not None and world.state.status.conditions[0].status == "True":
            world.capacity_adds_up(exactly=True)

    @invariant()
    def a_card_is_in_at_most_one_pool(self) -> None:
        world = self.world
        ordered = [order.inventory_id for order in world.state.spec.assignments]
        assert len(ordered) == len(set(ordered))
        served = [card for resource in world.plugin.resources for card in resource.inventory_ids]
        assert len(served) == len(set(served))
        for order in world.state.spec.assignments:
            if order.inventory_id in world.devices:
                # None: the card was pulled and put back, and its old order has not been withdrawn yet.
                assert world.claim(order.inventory_id) in (order.pool, None), "ordered for one pool, claimed by another"

    @invariant()
    def a_card_in_use_stays_with_its_pool(self) -> None:
        world = self.world
        orders = {order.inventory_id: order.resources[0].name for order in world.state.spec.assignments}
        for name, resource in world.holders.items():
            if world.labels is not None and name in orders:
                assert orders[name] == resource, "a card in use was ordered for another resource"

    @invariant()
    def capacity_never_exceeds_the_total(self) -> None:
        self.world.capacity_adds_up(exactly=False)


Histories.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def approved_world() -> World:
    world = World()
    world.pools["a"] = GPUPool(metadata=ObjectMeta(name="a", creation_timestamp=NOW), spec=PoolSpec())
    world.add_card(0)
    (name,) = world.devices
    world.annotate(name, assignment="a")
    world.settle()
    assert world.claim(name) == "a"
    return world


def test_an_approval_survives_a_reboot_and_a_re_registration() -> None:
    world = approved_world()
    (name,) = world.devices
    world.labels = None
    world.settle()
    world.set_ready(ready=False)
    world.settle()
    assert world.claim(name) == "a"
    world.labels = {}
    world.set_ready(ready=True)
    world.settle()
    assert [order.inventory_id for order in world.state.spec.assignments] == [name]


def test_an_approval_does_not_survive_a_replacement() -> None:
    world = approved_world()
    (name,) = world.devices
    world.annotate(name, assignment=None)
    world.settle()
    assert world.claim(name) is None
    assert world.state.spec.assignments == ()


def test_a_card_in_use_is_released_only_when_its_pod_has_ended() -> None:
    world = approved_world()
    (name,) = world.devices
    world.start_pod(name)
    world.annotate(name, assignment="b")
    world.pools["b"] = GPUPool(metadata=ObjectMeta(name="b", creation_timestamp=NOW), spec=PoolSpec())
    world.settle()
    assert world.claim(name) == "a"
    assert world.state.spec.assignments == ()
    world.end_pod(name)
    world.settle()
    assert world.claim(name) == "b"
    assert [change.what for change in world.devices[name].status.history] == [
        "Assigned to b",
        "Released from a",
        "Assigned to a",
    ]


def test_deleting_a_pool_waits_for_its_pods_and_takes_its_approvals_along() -> None:
    world = approved_world()
    (name,) = world.devices
    world.start_pod(name)
    world.delete_pool("a")
    world.settle()
    assert "a" in world.pools
    world.end_pod(name)
    world.settle()
    assert world.pools == {}
    assert Annotation.ASSIGNMENT not in world.devices[name].metadata.annotations
