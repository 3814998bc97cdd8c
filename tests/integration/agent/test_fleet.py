"""The simulated fleet on a real control plane: cards published, offered, given to pods, moved, broken and mended."""

import time

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.fleet.machines import add_nodes, edit_card, edit_node
from gpu_control_plane.agent.simulated.machine import heal, lose, new_machine, reinstall, report_xid, swap
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name, read_cards, read_facts
from gpu_control_plane.kube.errors import NotFound
from integration.agent.fleet_env import NOTEBOOKS, TRAINING, Fleet, FleetEnv
from waiting import until_async


async def published(env: FleetEnv) -> NodeFeature:
    """What the node has published, as soon as there is something."""
    found: list[NodeFeature] = []

    async def there() -> bool:
        try:
            found.append(await env.client.get(NodeFeature, feature_name(env.node), NAMESPACE))
        except NotFound:
            return False
        return True

    await until_async(there)
    return found[-1]


async def test_a_node_publishes_its_cards_and_what_becomes_of_them(env: FleetEnv) -> None:
    await env.add_node(cards=8)
    feature = await published(env)
    assert read_cards(feature) == tuple(h200(env.node, index) for index in range(8))
    before = read_facts(feature)
    assert before.bus_cards == 8

    await edit_card(env.client, env.card(3), swap)
    await edit_node(env.client, env.node, reinstall)

    async def changed() -> bool:
        now = await published(env)
        fresh = {card.uuid for card in read_cards(now)} - {card.uuid for card in read_cards(feature)}
        return len(fresh) == 1 and read_facts(now).boot_id != before.boot_id

    await until_async(changed)

    async def booted() -> bool:
        node = await env.client.get(NodeView, env.node)
        return node.status.node_info.boot_id == read_facts(await published(env)).boot_id

    await until_async(booted)


async def test_an_order_makes_the_resource_appear_and_a_pod_gets_a_card(env: FleetEnv) -> None:
    await env.add_node(cards=2)
    generation = await env.order({0: TRAINING, 1: NOTEBOOKS})
    await env.answered(generation, one=(TRAINING, [0], 1), other=(NOTEBOOKS, [1], 1))
    await env.offers(TRAINING, "1", "1")
    for pod, resource in (("train", TRAINING), ("note", NOTEBOOKS)):
        await env.start_pod(pod, resource)
        await env.phase(pod, "Running")
    assert await env.users(0) == ["train"]
    assert await env.users(1) == ["note"]
    await env.end_pod("train")
    await env.used_by(0, [])


async def test_a_card_in_use_moves_only_when_its_pod_has_ended(env: FleetEnv) -> None:
    await env.add_node(cards=2)
    await env.order({0: TRAINING, 1: TRAINING})
    await env.offers(TRAINING, "2", "2")
    await env.start_pod("train")
    await env.phase("train", "Running")

    generation = await env.order({0: NOTEBOOKS, 1: NOTEBOOKS})
    # The free card has moved by now; the one in use is still listed where it was handed out, and nowhere else.
    await env.answered(generation, old=(TRAINING, [0], 0), new=(NOTEBOOKS, [1], 1))
    await env.offers(TRAINING, "1", "0")
    assert (await env.pod("train")).phase == "Running"

    await env.end_pod("train")
    await env.answered(generation, new=(NOTEBOOKS, [0, 1], 2))
    await env.offers(TRAINING, "0", "0")
    await env.offers(NOTEBOOKS, "2", "2")


async def test_a_pod_that_was_bound_for_a_card_that_is_not_there_fails(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.order({0: TRAINING})
    await env.offers(TRAINING, "1", "1")
    await env.start_pod("first", bound=True)
    await env.phase("first", "Running")
    await env.start_pod("second", bound=True)
    await env.phase("second", "Failed")
    assert (await env.pod("second")).status["reason"] == "UnexpectedAdmissionError"
    assert await env.users(0) == ["first"]


async def test_a_fault_takes_the_card_out_of_service_and_leaves_its_pod_alone(env: FleetEnv) -> None:
    await env.add_node(cards=2)
    generation = await env.order({0: TRAINING, 1: TRAINING})
    await env.start_pod("train")
    await env.phase("train", "Running")

    await edit_card(env.client, env.card(0), lambda machine, at: report_xid(machine, at, 31))
    await edit_card(env.client, env.card(0), lambda machine, at: report_xid(machine, at, 79))
    await env.healthy(0, "False", "XID79")
    await env.answered(generation, one=(TRAINING, [0, 1], 1))
    await env.offers(TRAINING, "2", "1")
    assert (await env.pod("train")).phase == "Running"
    assert await env.users(0) == ["train"]
    device = await env.client.get(GPUDevice, env.card(0))
    assert device.status.telemetry is not None
    assert device.status.telemetry.last_xid == 79

    await env.annotate(0, {Annotation.CLEAR_FAULT: "reset by hand"})
    await env.healthy(0, "True", "ProbePassed")
    await env.offers(TRAINING, "2", "2")

    async def unmarked() -> bool:
        return Annotation.CLEAR_FAULT not in (await env.client.get(GPUDevice, env.card(0))).metadata.annotations

    await until_async(unmarked)


async def test_a_lost_card_returns_when_it_is_repaired_and_not_because_a_person_says_so(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.order({0: TRAINING})
    await edit_card(env.client, f"{env.node}/0000:18:00.0", lose)
    await env.healthy(0, "False", "LostFromBus")
    await env.annotate(0, {Annotation.CLEAR_FAULT: "looks fine"})

    async def heard() -> bool:
        return Annotation.CLEAR_FAULT not in (await env.client.get(GPUDevice, env.card(0))).metadata.annotations

    await until_async(heard)
    await env.healthy(0, "False", "LostFromBus")
    await edit_card(env.client, env.card(0), heal)
    await env.offers(TRAINING, "1", "1")


async def test_choices_survive_a_killed_fleet(env: FleetEnv, fleet: Fleet) -> None:
    await env.add_node(cards=4)
    await env.order(dict.fromkeys(range(4), TRAINING))
    for name in ("one", "two", "three"):
        await env.start_pod(name)
        await env.phase(name, "Running")
    await env.end_pod("one")
    before = {name: card for name, card in (await env.all_users()).items() if name != "one"}
    await env.used_by(0, [])

    fleet.kill()
    await env.start_pod("four")
    generation = await env.order(dict.fromkeys(range(1, 4), TRAINING))
    fleet.start()
    await env.phase("four", "Running")
    after = await env.all_users()
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 3
    await env.answered(generation, one=(TRAINING, [1, 2, 3], 3))


async def test_a_node_that_registers_again_offers_and_publishes_the_same_cards(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.order({0: TRAINING})
    await env.offers(TRAINING, "1", "1")
    before = await published(env)
    await env.client.delete(NodeView, env.node)
    await add_nodes(env.client, [env.node], new_machine("H200-141", 1))
    await env.offers(TRAINING, "1", "1")
    uid = (await env.client.get(NodeView, env.node)).metadata.uid

    async def owned_by_the_new_node() -> bool:
        now = await published(env)
        return now.metadata.owner_references[0].uid == uid and now.spec == before.spec

    await until_async(owned_by_the_new_node)


async def test_a_slow_node_reacts_late(env: FleetEnv) -> None:
    await env.add_node(cards=1, slow=8.0)
    await env.healthy(0, "True", "ProbePassed")
    ordered_at = time.monotonic()
    await env.order({0: TRAINING})
    await env.offers(TRAINING, "1", "1")
    # What woke it a moment before the order came counts, too.
    assert time.monotonic() - ordered_at > 1.0


async def test_a_pod_on_a_simulated_node_without_cards_is_not_kept_waiting(env: FleetEnv) -> None:
    await env.add_plain_node({"example.com/fpga": "1"})
    await env.start_pod("fpga", "example.com/fpga")
    await env.phase("fpga", "Running")


async def test_a_fleet_at_rest_writes_nothing(env: FleetEnv, fleet: Fleet) -> None:
    await env.add_node(cards=4)
    generation = await env.order({0: TRAINING, 1: TRAINING})
    await env.answered(generation, one=(TRAINING, [0, 1], 2))
    await env.start_pod("train")
    await env.phase("train", "Running")
    fleet.stop()
    versions = await env.versions()
    fleet.start()
    await env.start_pod("second")
    await env.phase("second", "Running")
    changed = {key for key, version in (await env.versions()).items() if versions.get(key) != version}
    card = (await env.all_users())["second"]
    # The card has a user, and its node one unit less to give.
    assert changed == {("GPUDevice", card), ("GPUNodeState", card.partition("-0000-")[0])}


async def test_a_pod_that_asks_for_no_card_by_name_runs_at_once(env: FleetEnv) -> None:
    await env.add_node(cards=1)
    await env.start_pod("none", cards=0, bound=True)
    await env.phase("none", "Running")
