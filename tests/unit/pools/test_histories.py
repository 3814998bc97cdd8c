"""Random histories of cards, pools, approvals, faults, pods and crashes never break what pools guarantee."""

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, ProfileCount, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.gpupool import (
    GPUPool,
    MaintenanceStrategy,
    PoolAssignment,
    PoolMaintenance,
    PoolResource,
    PoolSpec,
    PoolStatus,
)
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.decide import outlook
from gpu_control_plane.pools.maintenance import carried_out, is_changing
from gpu_control_plane.pools.units import card_resources
from gpu_control_plane.rules.device_selection import selects
from gpu_control_plane.rules.pool_validation import faults
from unit.pools.model import NOW, NodeModel

STRATEGIES = {"a": MaintenanceStrategy.POOL, "b": MaintenanceStrategy.POOL, "c": MaintenanceStrategy.NODE}
_POOLS = tuple(STRATEGIES)
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
WHOLE = PoolAllocation()
_allocations = st.sampled_from(
    [
        WHOLE,
        PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=3)),
        PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb")),
        PoolAllocation(
            mode=Mode.MIG,
            mig=MIG(layout=(ProfileCount(profile="3g.71gb", count=1), ProfileCount(profile="1g.18gb", count=2))),
        ),
        PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.10gb")),
    ]
)
"""The last one is of another card."""
_assignments = st.sampled_from(
    [
        PoolAssignment(),
        PoolAssignment(require_annotation=False),
        PoolAssignment(auto_approve_selector=LabelSelector(match_labels={"trusted": "yes"})),
    ]
)


class Histories(RuleBasedStateMachine):
    """Anything may happen at any time; the controller and the agent act now and then, and the controller may die."""

    def __init__(self) -> None:
        super().__init__()
        self.model = NodeModel()
        self.pools_made = 0
        for index in range(3):
            self.model.add_card(index)
        for name in ("a", "b"):
            self.a_pool_is_written(name, None, PoolAssignment(), WHOLE, shared=False)

    def _card(self, index: int) -> str | None:
        names = sorted(self.model.devices)
        return names[index % len(names)] if names else None

    @rule(index=_indices)
    def a_card_appears(self, index: int) -> None:
        """Also one that was pulled before, while its old assignment still exists."""
        self.model.add_card(index)

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices)
    def a_card_is_pulled(self, index: int) -> None:
        self.model.remove_card(self._card(index) or "")

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices)
    def a_card_is_swapped(self, index: int) -> None:
        """What inventory does about it: the approval is dropped."""
        self.model.annotate(self._card(index) or "", assignment=None)

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices, pool=st.sampled_from((*_POOLS, "unknown", None)))
    def a_person_approves(self, index: int, pool: str | None) -> None:
        self.model.annotate(self._card(index) or "", assignment=pool)

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices, value=st.sampled_from(("being moved", None)))
    def a_person_holds(self, index: int, value: str | None) -> None:
        self.model.annotate(self._card(index) or "", hold=value)

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices, labels=st.sampled_from(({Label.IGNORE: "true"}, {Label.IGNORE: ""}, {"trusted": "yes"})))
    def a_person_labels(self, index: int, labels: dict[str, str]) -> None:
        device = self.model.devices[self._card(index) or ""]
        metadata = replace(device.metadata, labels={**device.metadata.labels, **labels})
        self.model.devices[device.name] = replace(device, metadata=metadata)

    @precondition(lambda self: self.model.devices)
    @rule(index=_indices, healthy=st.booleans())
    def health_changes(self, index: int, healthy: bool) -> None:
        self.model.set_healthy(self._card(index) or "", healthy=healthy)

    @rule(ready=st.booleans())
    def readiness_changes(self, ready: bool) -> None:
        self.model.set_ready(ready=ready)

    @rule(labels=st.sampled_from((None, {}, {"zone": "a"})))
    def the_node_goes_or_comes(self, labels: dict[str, str] | None) -> None:
        self.model.labels = labels

    @rule(
        name=st.sampled_from(_POOLS),
        selector=_selectors,
        assignment=_assignments,
        allocation=_allocations,
        shared=st.booleans(),
    )
    def a_pool_is_written(
        self,
        name: str,
        selector: DeviceSelector | None,
        assignment: PoolAssignment,
        allocation: PoolAllocation,
        shared: bool,
    ) -> None:
        known = self.model.pools.get(name)
        if known is not None and known.deleting:
            return
        self.pools_made += 1
        created = known.metadata.creation_timestamp if known else NOW + timedelta(seconds=self.pools_made)
        resource = PoolResource(name="gpu.example.com/shared") if shared else None
        spec = PoolSpec(
            device_selector=selector,
            assignment=assignment,
            allocation=allocation,
            resource=resource,
            maintenance=PoolMaintenance(strategy=STRATEGIES[name]),
        )
        if known is not None:
            # The resource of a pool in use keeps its name: a change would move its cards, which the model leaves out.
            spec = replace(spec, resource=known.spec.resource)
        metadata = ObjectMeta(name=name, creation_timestamp=created)
        self.model.pools[name] = GPUPool(metadata=metadata, spec=spec, status=known.status if known else PoolStatus())

    @precondition(lambda self: self.model.pools)
    @rule(name=st.sampled_from(_POOLS))
    def a_pool_is_deleted(self, name: str) -> None:
        if name in self.model.pools:
            self.model.delete_pool(name)

    @precondition(lambda self: self.model.offered())
    @rule(index=_indices)
    def a_pod_starts(self, index: int) -> None:
        offered = sorted(self.model.offered())
        self.model.start_pod(offered[index % len(offered)])

    @precondition(lambda self: self.model.holders)
    @rule(index=_indices)
    def a_pod_ends(self, index: int) -> None:
        holders = sorted(self.model.holders)
        self.model.end_pod(holders[index % len(holders)])

    @rule()
    def the_agent_acts(self) -> None:
        self.model.agent_acts()

    @rule()
    def the_pools_act(self) -> None:
        self.model.pools_act()

    @rule()
    def the_controller_acts(self) -> None:
        self.model.controller_acts()

    @rule(writes=st.integers(0, 4))
    def the_controller_dies(self, writes: int) -> None:
        self.model.controller_acts(dies_after=writes)

    @rule()
    def everything_settles(self) -> None:
        self.model.settle()
        self._check_settled()

    @precondition(lambda self: not any(pool.deleting for pool in self.model.pools.values()))
    @rule()
    def the_outlook_comes_true_when_pods_end(self) -> None:
        model = self.model
        divided = {name: carried_out(pool) for name, pool in model.pools.items()}
        expected = {name: end.pool for name, end in outlook(replace(model.snapshot(), pools=divided)).ends.items()}
        for name in [name for name, held in model.holders.items() for _ in held]:
            model.end_pod(name)
        model.settle()
        assert {name: model.claim(name) for name in model.devices} == expected

    def _check_settled(self) -> None:
        model = self.model
        for name, device in model.devices.items():
            claim = model.claim(name)
            if claim is None or name in model.holders:
                continue
            pool = model.pools[claim]
            assert device.metadata.annotations.get(Annotation.ASSIGNMENT) == claim, "assigned without approval"
            assert device.metadata.labels.get(Label.IGNORE) != "true", "an ignored card is in a pool"
            assert not pool.deleting
            assert claim not in faults(model.pools.values())
            if model.labels is not None:
                assert selects(pool, device, model.labels), "assigned without being selected"
            assert card_resources(pool, pool.allocation, device.status.hardware), "assigned without being suitable"
        for name, pool in model.pools.items():
            held = [card for card in model.devices if model.claim(card) == name and card in model.holders]
            if is_changing(pool) and STRATEGIES[name] is MaintenanceStrategy.POOL:
                assert held, "nothing is in the way of the maintenance"
                assert pool.status.maintenance is not None
                assert name not in {order.pool for order in model.state.spec.assignments}, "ordered in maintenance"
            selector = pool.spec.device_selector
            limit = selector.max_devices_per_node if selector else None
            idle = [card for card in model.devices if model.claim(card) == name and card not in model.holders]
            assert limit is None or len(idle) <= limit, "more cards of a node than the pool may have"
        if model.labels is not None and model.state.status.conditions[0].status == "True":
            model.capacity_adds_up(exactly=True)

    @invariant()
    def a_card_is_in_at_most_one_pool(self) -> None:
        model = self.model
        ordered = [order.inventory_id for order in model.state.spec.assignments]
        assert len(ordered) == len(set(ordered))
        served = {
            (card, _pool(resource.name)) for resource in model.plugin.resources for card in resource.inventory_ids
        }
        assert len({card for card, _ in served}) == len(served), "a card is offered by two pools"
        for order in model.state.spec.assignments:
            if order.inventory_id in model.devices:
                # None: the card was pulled and put back, and its old order has not been withdrawn yet.
                assert model.claim(order.inventory_id) in (order.pool, None), "ordered for one pool, claimed by another"

    @invariant()
    def a_card_in_use_stays_with_its_pool(self) -> None:
        model = self.model
        orders = {order.inventory_id: order for order in model.state.spec.assignments}
        for name, held in model.holders.items():
            by_node = name in orders and STRATEGIES[orders[name].pool] is MaintenanceStrategy.NODE
            if model.labels is not None and name in orders and not by_node:
                offered = {each.name for each in orders[name].resources}
                assert set(held) <= offered, "a card in use was ordered for another resource"
                assert orders[name].allocation == model.granted[name], "a card in use was ordered to be divided anew"

    @invariant()
    def capacity_never_exceeds_the_total(self) -> None:
        self.model.capacity_adds_up(exactly=False)


Histories.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def _pool(resource: str) -> str:
    """A resource without the profile, which resources of a mixed layout have in addition."""
    return resource.partition("/")[2].partition(".")[0]


def approved_model() -> NodeModel:
    model = NodeModel()
    model.pools["a"] = GPUPool(metadata=ObjectMeta(name="a", creation_timestamp=NOW), spec=PoolSpec())
    model.add_card(0)
    (name,) = model.devices
    model.annotate(name, assignment="a")
    model.settle()
    assert model.claim(name) == "a"
    return model


def test_an_approval_survives_a_reboot_and_a_re_registration() -> None:
    model = approved_model()
    (name,) = model.devices
    model.labels = None
    model.settle()
    model.set_ready(ready=False)
    model.settle()
    assert model.claim(name) == "a"
    model.labels = {}
    model.set_ready(ready=True)
    model.settle()
    assert [order.inventory_id for order in model.state.spec.assignments] == [name]


def test_an_approval_does_not_survive_a_replacement() -> None:
    model = approved_model()
    (name,) = model.devices
    model.annotate(name, assignment=None)
    model.settle()
    assert model.claim(name) is None
    assert model.state.spec.assignments == ()


def test_a_card_in_use_is_released_only_when_its_pod_has_ended() -> None:
    model = approved_model()
    (name,) = model.devices
    model.start_pod(name)
    model.annotate(name, assignment="b")
    model.pools["b"] = GPUPool(metadata=ObjectMeta(name="b", creation_timestamp=NOW), spec=PoolSpec())
    model.settle()
    assert model.claim(name) == "a"
    assert model.devices[name].status.state is DeviceState.DRAINING
    assert model.state.spec.assignments == ()
    model.end_pod(name)
    model.settle()
    assert model.claim(name) == "b"
    assert [change.what for change in model.devices[name].status.history] == [
        "Assigned to b",
        "Released from a",
        "Assigned to a",
    ]


def test_deleting_a_pool_waits_for_its_pods_and_takes_its_approvals_along() -> None:
    model = approved_model()
    (name,) = model.devices
    model.start_pod(name)
    model.delete_pool("a")
    model.settle()
    assert "a" in model.pools
    model.end_pod(name)
    model.settle()
    assert model.pools == {}
    assert Annotation.ASSIGNMENT not in model.devices[name].metadata.annotations
