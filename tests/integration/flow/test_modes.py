"""Pools in every mode on a real API server: units offered, given to pods and counted resource by resource."""

from gpu_control_plane.api import GPUNodeState, GPUPool, PoolPhase
from gpu_control_plane.api.names import Annotation
from integration.flow.env import FlowEnv
from waiting import until_async

AUTO = {"requireAnnotation": False}
LAYOUT = [{"profile": "3g.71gb", "count": 1}, {"profile": "1g.18gb", "count": 3}]


def units(pool: GPUPool) -> dict[str, tuple[int, int, int]]:
    """Total, used and available of each resource."""
    return {each.name.partition("/")[2]: (each.total, each.used, each.available) for each in pool.status.capacity}


async def test_every_mode_gives_units_to_pods(env: FlowEnv) -> None:
    await env.start_controller()
    for node, allocation in {
        "slices": {"mode": "TimeSlice", "timeSlice": {"replicas": 4}},
        "equal": {"mode": "MIG", "mig": {"profile": "1g.18gb"}},
        "mixed": {"mode": "MIG", "mig": {"layout": LAYOUT}},
    }.items():
        selector = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node}}}
        await env.add_pool(node, allocation=allocation, assignment=AUTO, deviceSelector=selector)
    await env.add_nodes("slices", "equal", "mixed", cards=2)
    await env.pool_is("slices", lambda pool: units(pool) == {"slices": (8, 0, 8)})
    await env.pool_is("equal", lambda pool: units(pool) == {"equal": (14, 0, 14)})
    whole = {"mixed.3g.71gb": (2, 0, 2), "mixed.1g.18gb": (6, 0, 6)}
    await env.pool_is("mixed", lambda pool: units(pool) == whole)

    for name, resource in (("a", "slices"), ("b", "slices"), ("c", "equal"), ("d", "mixed.1g.18gb")):
        await env.start_pod(name, resource)
    await env.start_pod("e", "mixed.3g.71gb", cards=2)
    for name in "abcde":
        await env.pod_is(name, "Running")
    await env.pool_is("slices", lambda pool: units(pool) == {"slices": (8, 2, 6)})
    await env.pool_is("equal", lambda pool: units(pool) == {"equal": (14, 1, 13)})
    used = {"mixed.3g.71gb": (2, 2, 0), "mixed.1g.18gb": (6, 1, 5)}
    await env.pool_is("mixed", lambda pool: units(pool) == used and pool.status.phase is PoolPhase.READY)


async def test_cards_that_cannot_be_divided_stay_out_and_are_counted(env: FlowEnv) -> None:
    """An older pool of instances and a younger one of whole cards overlap on a node with cards that have no MIG."""
    await env.start_controller()
    await env.add_pool("equal", allocation={"mode": "MIG", "mig": {"profile": "1g.18gb"}}, assignment=AUTO)
    await env.add_nodes("node-a", cards=1)
    await env.add_nodes("node-b", profile="L40S", cards=2)
    await env.pool_is("equal", lambda pool: units(pool) == {"equal": (7, 0, 7)})
    await until_async(lambda: _waits(env, "equal", {"ModeUnsupported": 2}))
    pending = {card.reason for card in (await env.states())["node-b"].status.pools.pending}  # type: ignore[union-attr]
    assert pending == {"ModeUnsupported"}
    await env.add_pool("whole", assignment=AUTO)
    await env.pool_is("whole", lambda pool: units(pool) == {"whole": (2, 0, 2)})
    await until_async(lambda: _waits(env, "whole", {"InOtherPool": 1}))


async def test_a_node_that_cannot_partition_as_ordered_is_told_until_a_person_confirms(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_pool("equal", allocation={"mode": "MIG", "mig": {"profile": "1g.18gb"}}, assignment=AUTO)
    await env.add_nodes("node-a", "node-b", cards=1)
    await env.pool_is("equal", lambda pool: units(pool) == {"equal": (14, 0, 14)})
    await env.stop_fleet()
    problem = {"inventoryID": "node-a-0000-18-00-0", "reason": "Misconfigured", "message": "The card has no 1g.18gb."}
    await _answer(env, [problem])
    await env.pool_is("equal", lambda pool: _configured(pool) == ("Misconfigured", "False", "LayoutMismatch"))
    said = (await env.pool("equal")).status
    assert "node-a" in said.conditions[0].message
    assert said.conditions[1].status == "True", "the other node serves"
    await _answer(env, None)
    await env.pool_is("equal", lambda pool: "confirm-layout=yes" in pool.status.conditions[0].message)
    confirm = {"metadata": {"annotations": {Annotation.CONFIRM_LAYOUT.value: "yes"}}}
    await env.client.patch(GPUPool, "equal", confirm)
    await env.pool_is("equal", lambda pool: _configured(pool) == ("Ready", "True", "Configured"))
    await env.pool_is("equal", lambda pool: Annotation.CONFIRM_LAYOUT not in pool.metadata.annotations)


async def test_pods_that_hold_cards_under_the_name_before_are_still_counted(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_pool("whole", assignment=AUTO)
    await env.add_nodes("node-a", cards=2)
    await env.pool_is("whole", lambda pool: units(pool) == {"whole": (2, 0, 2)})
    await env.start_pod("holder", "whole")
    await env.pod_is("holder", "Running")
    await env.client.patch(GPUPool, "whole", {"spec": {"resource": {"name": "gpu.example.com/other"}}})
    await env.pool_is("whole", lambda pool: units(pool) == {"other": (2, 1, 1)})
    nodes = (await env.pool("whole")).status.nodes
    assert nodes is not None
    assert [node.reason for node in nodes.worst] == ["HeldUnderAnotherName"]
    assert await env.phase("holder") == "Running"
    await env.end_pod("holder")
    await env.pool_is("whole", lambda pool: units(pool) == {"other": (2, 0, 2)})


async def _answer(env: FlowEnv, problems: list[dict[str, str]] | None) -> None:
    body = {"status": {"plugin": {"problems": problems}}}
    await env.client.patch(GPUNodeState, "node-a", body, subresource="status")


def _configured(pool: GPUPool) -> tuple[str, str, str]:
    condition = pool.status.conditions[0]
    return str(pool.status.phase), condition.status, condition.reason


async def _waits(env: FlowEnv, name: str, expected: dict[str, int]) -> bool:
    cards = (await env.pool(name)).status.cards
    return cards is not None and {each.reason: each.cards for each in cards.waiting} == expected
