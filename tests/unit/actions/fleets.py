"""Fleets for plans, made of the model of a node that pools are tested with; and what becomes of them."""

from msgspec.structs import replace

from gpu_control_plane.actions.forecast import with_edits
from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.views.fleet import Fleet
from unit.pools.model import NODE, NodeModel


def fleet_of(model: NodeModel) -> Fleet:
    """The model as people would read it, with the numbers in the status of pools."""
    nodes = {NODE: Node(metadata=ObjectMeta(name=NODE, labels=model.labels))} if model.labels is not None else {}
    pools = {name: _counted(model, pool) for name, pool in model.pools.items()}
    return Fleet(cards=dict(model.devices), states={NODE: model.state}, pools=pools, nodes=nodes)


def carry_out(model: NodeModel, plan: Plan) -> None:
    """Write the plan, let every pod end, and let controller and agent finish."""
    model.devices = dict(with_edits(fleet_of(model), plan.edits).cards)
    end_pods(model)
    model.settle()


def end_pods(model: NodeModel) -> None:
    for name in [name for name, held in model.holders.items() for _ in held]:
        model.end_pod(name)


def totals(model: NodeModel) -> dict[tuple[str, str], int]:
    """The units of each pool by resource, as its status says."""
    return {
        (pool.name, capacity.name): capacity.total
        for pool in fleet_of(model).pools.values()
        for capacity in pool.status.capacity
        if capacity.total
    }


def _counted(model: NodeModel, pool: GPUPool) -> GPUPool:
    capacity = model.capacity(pool).resources(pool.names_with(pool.allocation))
    return replace(pool, status=replace(pool.status, capacity=capacity))
