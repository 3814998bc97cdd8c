"""Exclusive → MIG → TimeSlice under load on a real API server: no running pod is touched."""

from collections.abc import Mapping

import pytest

from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUPool, PoolPhase
from gpu_control_plane.kube import Selection
from integration.flow.env import FlowEnv
from integration.flow.test_main_job import notes_about
from integration.flow.test_modes import AUTO, units
from integration.kinds import Pod
from waiting import until_async

WHOLE = {"mode": "Exclusive"}
INSTANCES = {"mode": "MIG", "mig": {"profile": "1g.18gb"}}
SLICES = {"mode": "TimeSlice", "timeSlice": {"replicas": 4}}


async def divide(env: FlowEnv, allocation: Mapping[str, object]) -> None:
    nothing = {"mig": None, "timeSlice": None}
    await env.client.patch(GPUPool, "training", {"spec": {"allocation": {**nothing, **allocation}}})


async def pods(env: FlowEnv) -> dict[str, tuple[str, str]]:
    """The phase and the uid of every pod."""
    found = await env.client.list(Pod, Selection("default"))
    return {pod.name: (pod.status.phase, pod.metadata.uid) for pod in found}


async def at_most_allocatable(env: FlowEnv, units: int) -> None:
    """Until nodes have no more allocatable: a pod that the scheduler binds before fails, and does not wait."""

    async def holds() -> bool:
        nodes = await env.client.list(NodeView)
        return sum(int(node.status.allocatable.get("gpu.deckhouse.io/training", "0")) for node in nodes) <= units

    await until_async(holds, saying=f"no more than {units} units are allocatable")


def in_use(pool: GPUPool) -> int | None:
    return pool.status.maintenance.units_in_use if pool.status.maintenance else None


@pytest.mark.timeout(600)
async def test_a_pool_changes_its_mode_twice_while_pods_come_and_go(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_pool("training", assignment=AUTO)
    await env.add_nodes("node-a", "node-b", cards=2)
    await env.pool_is("training", lambda pool: units(pool) == {"training": (4, 0, 4)})
    for name in ("one", "two", "three"):
        await env.start_pod(name, "training")
        await env.pod_is(name, "Running")
    before = await pods(env)

    # Pods that run go on; one that comes now waits, and the controller may die on the way.
    await divide(env, INSTANCES)
    await env.pool_is("training", lambda pool: pool.status.phase is PoolPhase.MAINTENANCE and in_use(pool) == 3)
    await at_most_allocatable(env, 3)
    await env.start_pod("later", "training")
    env.kill_controller()
    await env.controller_ended()
    await env.start_controller()
    await env.end_pod("one")
    await env.pool_is("training", lambda pool: in_use(pool) == 2)
    running = await pods(env)
    assert {name: running[name] for name in ("two", "three")} == {name: before[name] for name in ("two", "three")}
    assert running["later"][0] == "Pending"
    await env.end_pod("two")
    await env.end_pod("three")
    await env.pool_is("training", lambda pool: pool.status.phase is PoolPhase.READY, within=180)
    await env.pod_is("later", "Running")
    await env.pool_is("training", lambda pool: units(pool) == {"training": (28, 1, 27)})

    # Taken back while the pod runs: it is not touched, and the instances are on offer again.
    await divide(env, SLICES)
    await env.pool_is("training", lambda pool: in_use(pool) == 1)
    await divide(env, INSTANCES)
    await env.pool_is("training", lambda pool: units(pool) == {"training": (28, 1, 27)} and in_use(pool) is None)
    await env.pool_is("training", lambda pool: pool.status.phase is PoolPhase.READY)

    await divide(env, SLICES)
    await env.pool_is("training", lambda pool: pool.status.phase is PoolPhase.MAINTENANCE)
    assert (await pods(env))["later"][0] == "Running"
    await env.end_pod("later")
    await env.pool_is("training", lambda pool: units(pool) == {"training": (16, 0, 16)}, within=180)
    await env.pool_is("training", lambda pool: pool.status.phase is PoolPhase.READY)
    for state in (await env.states()).values():
        assert [str(order.allocation) for order in state.spec.assignments] == ["TimeSlice 4"] * 2
    history = [change.what for change in next(iter((await env.devices()).values())).status.history]
    assert history[:2] == ["Divided as TimeSlice 4", "Divided as MIG 1g.18gb"]
    stages = await notes_about(env, "training", "GPUPoolMaintenance")
    assert {note.partition(":")[0] for note in stages} == {"begins", "no pod is in the way any more", "ended"}


@pytest.mark.timeout(600)
async def test_node_by_node_the_pool_never_stands_still(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_pool("training", assignment=AUTO, maintenance={"strategy": "Node", "deadline": "10s"})
    await env.add_nodes("node-a", "node-b", cards=1)
    await env.pool_is("training", lambda pool: units(pool) == {"training": (2, 0, 2)})
    for name in ("one", "two"):
        await env.start_pod(name, "training")
        await env.pod_is(name, "Running")
    await divide(env, INSTANCES)
    await env.pool_is("training", lambda pool: pool.status.maintenance and pool.status.maintenance.node == "node-a")
    ordered = {name: str(state.spec.assignments[0].allocation) for name, state in (await env.states()).items()}
    assert ordered["node-b"] == "Exclusive"
    holders = {device.spec.node_name: device.status.used_by[0].pod for device in (await env.devices()).values()}
    await env.end_pod(holders["node-a"])
    await env.pool_is("training", lambda pool: pool.status.maintenance and pool.status.maintenance.node == "node-b")
    await env.start_pod("new", "training")
    await env.pod_is("new", "Running")
    assert await env.phase(holders["node-b"]) == "Running"
    await env.end_pod(holders["node-b"])
    await env.pool_is("training", lambda pool: units(pool) == {"training": (14, 1, 13)}, within=180)
    await env.pool_is("training", lambda pool: pool.status.maintenance is None)
