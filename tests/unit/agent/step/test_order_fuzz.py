"""Whatever the orders say, as long as the API accepts them: nothing breaks, no unit is allocatable twice or without
hardware behind it, and an order that is not carried out is reported."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.kubelet.preferred_units import preferred_units
from gpu_control_plane.agent.mig.units import slot_of
from gpu_control_plane.agent.step import StepSettings
from gpu_control_plane.agent.units import clash
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import MAX_CARDS, Assignment
from gpu_control_plane.rules.mig_layout import Slot
from unit.agent.step.node_model import NodeModel
from unit.agent.step.random_orders import named, orders

MODELS = ("H200-141", "A100-80", "L40S")
MOST_RESOURCES = 128
LONGEST_MESSAGE = 1024


def check(node: NodeModel) -> None:
    units, plan = node.allocatable, node.plan
    assert plan is not None
    assert plan.plugin is not None
    for one, other in combinations(units | plan.held.keys(), 2):
        assert not clash(one, other), f"{one} and {other} could be given to two pods"
    for unit in units:
        card = node.hardware.observed[unit.card]
        assert card.mig_enabled is (unit.mode is Mode.MIG)
        if unit.mode is Mode.MIG:
            assert slot_of(unit) in {Slot.of(instance) for instance in node.backend.instances(card.address)}
    # Within the bounds of the CRD, or the API server would refuse it.
    assert len(plan.plugin.resources) <= MOST_RESOURCES
    assert len(plan.plugin.problems) <= MAX_CARDS
    assert all(len(problem.message) <= LONGEST_MESSAGE for problem in plan.plugin.problems)
    # The kubelet may ask for any number of a resource's units.
    for resource in {unit.resource for unit in units}:
        candidates = sorted((unit for unit in units if unit.resource == resource), key=lambda unit: unit.id)
        required = [candidates[0].id]
        for size in (1, len(candidates)):
            chosen = preferred_units(candidates, node.hardware.observed, plan.held, required, size)
            assert len(chosen) == size
            assert set(required) <= set(chosen) <= {unit.id for unit in candidates}


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_orders_one_after_another_with_pods_in_the_way(model: str, data: st.DataObject) -> None:
    unpooled = data.draw(st.sampled_from([None, "nvidia.com/gpu"]))
    node = NodeModel(model, 4, StepSettings(unpooled=unpooled))
    for turn in range(data.draw(st.integers(1, 4))):
        given = data.draw(orders)
        node.order(*map(named, given) if data.draw(st.booleans()) else given)
        for step in range(data.draw(st.integers(1, 6))):
            node.settle(steps=1)
            check(node)
            if data.draw(st.booleans()) and node.free:
                node.allocate(*data.draw(st.sampled_from(node.free)), f"{turn}-{step}-{'pod' * 80}")
        if data.draw(st.booleans()) and node.pods:
            node.end_pod(data.draw(st.sampled_from(sorted(node.pods))))


@pytest.mark.parametrize("model", MODELS)
@given(before=orders, given=orders)
@settings(max_examples=20, deadline=None)
def test_in_calm_every_order_is_carried_out_or_its_problem_reported(
    model: str, before: list[Assignment], given: list[Assignment]
) -> None:
    node = NodeModel(model, 4)
    for assignments in (before, given):
        node.order(*assignments)
        node.settle()
    served = {unit.card for unit in node.allocatable}
    silent = [order for order in given if order.inventory_id not in served | node.problems.keys()]
    assert silent == []
    assert node.advertised == node.allocatable, "nothing is left over from the orders before"
