"""Time slicing and MIG on the simulated fleet: the agent's own step, played for many nodes by one process."""

from gpu_control_plane.agent.simulated.machine import read_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api.gpunodestate import GPUNodeState, ProblemReason
from integration.agent.fleet_env import TRAINING, Fleet, FleetEnv
from unit.agent.step.builders import exclusive, partitioned, profile_order, time_sliced
from waiting import until_async

LARGE, SMALL = f"{TRAINING}.3g.71gb", f"{TRAINING}.1g.18gb"


async def instances(env: FleetEnv) -> list[tuple[str, int]]:
    """The MIG instances of the node's first card, by the document of its hardware."""
    node = await env.client.get(NodeView, env.node)
    machine = read_machine(env.node, node.metadata.annotations)
    assert machine is not None
    return [(each.profile, each.start) for state in machine.state.values() for each in state.instances]


async def problem(env: FleetEnv) -> tuple[ProblemReason, str] | None:
    plugin = (await env.client.get(GPUNodeState, env.node)).status.plugin
    return (plugin.problems[0].reason, plugin.problems[0].message) if plugin and plugin.problems else None


async def test_pods_take_turns_on_a_time_sliced_card(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.assign(time_sliced(env.card(0), 3, TRAINING))
    await env.offers(TRAINING, "3", "3")
    for pod in ("one", "two", "three"):
        await env.start_pod(pod)
        await env.phase(pod, "Running")
    await env.used_by(0, ["one", "three", "two"])
    await env.start_pod("fourth", bound=True)
    await env.phase("fourth", "Failed")
    await env.end_pod("two")
    await env.used_by(0, ["one", "three"])


async def test_a_card_is_partitioned_and_its_instances_are_given_to_pods(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.assign(partitioned(env.card(0), **{"3g_71gb": 1, "1g_18gb": 3}))
    await env.offers(LARGE, "1", "1")
    await env.offers(SMALL, "3", "3")
    for pod, resource in (("large", LARGE), ("small", SMALL)):
        await env.start_pod(pod, resource)
        await env.phase(pod, "Running")
    await env.used_by(0, ["large", "small"])
    assert sorted(profile for profile, _ in await instances(env)) == ["1g.18gb"] * 3 + ["3g.71gb"]


async def test_a_layout_changes_around_an_instance_in_use_also_when_the_fleet_dies(env: FleetEnv, fleet: Fleet) -> None:
    await env.add_node(cards=1)
    await env.assign(profile_order(env.card(0), "1g.18gb", SMALL))
    await env.offers(SMALL, "7", "7")
    await env.start_pod("small", SMALL)
    await env.phase("small", "Running")
    fleet.kill()
    await env.assign(partitioned(env.card(0), **{"3g_71gb": 2}))
    fleet.start()

    async def waits() -> bool:
        found = await problem(env)
        return found is not None and found[0] is ProblemReason.WAITING and f"{env.namespace}/small" in found[1]

    await until_async(waits, saying="the problem names the pod in the way")
    await env.offers(LARGE, "1", "1")
    assert (await env.pod("small")).phase == "Running"
    await env.end_pod("small")
    await env.offers(LARGE, "2", "2")
    await env.offers(SMALL, "0", "0")
    assert await problem(env) is None


async def test_a_card_goes_from_whole_to_instances_to_time_slices_and_back(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.assign(exclusive(env.card(0), TRAINING))
    await env.offers(TRAINING, "1", "1")
    await env.assign(profile_order(env.card(0), "1g.18gb", SMALL))
    await env.offers(SMALL, "7", "7")
    await env.offers(TRAINING, "0", "0")
    await env.assign(time_sliced(env.card(0), 4, TRAINING))
    await env.offers(TRAINING, "4", "4")
    assert await instances(env) == []
    generation = await env.assign(exclusive(env.card(0), TRAINING))
    await env.answered(generation, one=(TRAINING, [0], 1))
    await env.offers(TRAINING, "1", "1")


async def test_an_order_that_a_card_cannot_meet_is_reported(env: FleetEnv) -> None:
    await env.add_node(cards=1, profile="L40S")
    await env.assign(profile_order(env.card(0), "1g.18gb", SMALL))

    async def misconfigured() -> bool:
        found = await problem(env)
        return found is not None and found[0] is ProblemReason.MISCONFIGURED

    await until_async(misconfigured)


async def test_a_paused_node_advertises_nothing_and_says_so(env: FleetEnv) -> None:
    await env.add_node(cards=2)
    await env.order({0: TRAINING, 1: TRAINING})
    await env.offers(TRAINING, "2", "2")
    label = "gpu.deckhouse.io/deploy.agent"
    await env.client.patch(NodeView, env.node, {"metadata": {"labels": {label: "paused-for-test"}}})
    await env.offers(TRAINING, "2", "0")

    async def quiesced() -> bool:
        status = (await env.client.get(GPUNodeState, env.node)).status
        return status.quiesced is not None and status.quiesced.reason == "paused-for-test"

    await until_async(quiesced)
    await env.client.patch(NodeView, env.node, {"metadata": {"labels": {label: None}}})
    await env.offers(TRAINING, "2", "2")
    assert (await env.client.get(GPUNodeState, env.node)).status.quiesced is None
