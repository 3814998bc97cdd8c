"""The simulated fleet on a real control plane: cards published, offered, given to pods, moved, broken and mended."""

import time

from gpu_control_plane.agent.fleet.machines import add_nodes, edit_card, edit_node
from gpu_control_plane.agent.simulated.machine import heal, lose, new_machine, reinstall, report_xid, swap
from gpu_control_plane.agent.views import Node
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, feature_name, read_cards, read_facts
from gpu_control_plane.kube.errors import NotFound
from integration.agent.world import NOTEBOOKS, TRAINING, Fleet, World
from waiting import until_async


async def published(world: World) -> NodeFeature:
    """What the node has published, as soon as there is something."""
    found: list[NodeFeature] = []

    async def there() -> bool:
        try:
            found.append(await world.client.get(NodeFeature, feature_name(world.node), NAMESPACE))
        except NotFound:
            return False
        return True

    await until_async(there)
    return found[-1]


async def test_a_node_publishes_its_cards_and_what_becomes_of_them(world: World) -> None:
    await world.add_node(cards=8)
    feature = await published(world)
    assert read_cards(feature) == tuple(h200(world.node, index) for index in range(8))
    before = read_facts(feature)
    assert before.bus_cards == 8

    await edit_card(world.client, world.card(3), swap)
    await edit_node(world.client, world.node, reinstall)

    async def changed() -> bool:
        now = await published(world)
        fresh = {card.uuid for card in read_cards(now)} - {card.uuid for card in read_cards(feature)}
        return len(fresh) == 1 and read_facts(now).boot_id != before.boot_id

    await until_async(changed)

    async def booted() -> bool:
        node = await world.client.get(Node, world.node)
        return node.status.node_info.boot_id == read_facts(await published(world)).boot_id

    await until_async(booted)


async def test_an_order_makes_the_resource_appear_and_a_pod_gets_a_card(world: World) -> None:
    await world.add_node(cards=2)
    generation = await world.order({0: TRAINING, 1: NOTEBOOKS})
    await world.answered(generation, one=(TRAINING, [0], 1), other=(NOTEBOOKS, [1], 1))
    await world.offers(TRAINING, "1", "1")
    for pod, resource in (("train", TRAINING), ("note", NOTEBOOKS)):
        await world.start_pod(pod, resource)
        await world.phase(pod, "Running")
    assert await world.users(0) == ["train"]
    assert await world.users(1) == ["note"]
    await world.end_pod("train")
    await world.used_by(0, [])


async def test_a_card_in_use_moves_only_when_its_pod_has_ended(world: World) -> None:
    await world.add_node(cards=2)
    await world.order({0: TRAINING, 1: TRAINING})
    await world.offers(TRAINING, "2", "2")
    await world.start_pod("train")
    await world.phase("train", "Running")

    generation = await world.order({0: NOTEBOOKS, 1: NOTEBOOKS})
    # The free card has moved by now; the one in use is still listed where it was handed out, and nowhere else.
    await world.answered(generation, old=(TRAINING, [0], 0), new=(NOTEBOOKS, [1], 1))
    await world.offers(TRAINING, "1", "0")
    assert (await world.pod("train")).phase == "Running"

    await world.end_pod("train")
    await world.answered(generation, new=(NOTEBOOKS, [0, 1], 2))
    await world.offers(TRAINING, "0", "0")
    await world.offers(NOTEBOOKS, "2", "2")


async def test_a_pod_that_was_bound_for_a_card_that_is_not_there_fails(world: World) -> None:
    await world.add_node(cards=1)
    await world.order({0: TRAINING})
    await world.offers(TRAINING, "1", "1")
    await world.start_pod("first", bound=True)
    await world.phase("first", "Running")
    await world.start_pod("second", bound=True)
    await world.phase("second", "Failed")
    assert (await world.pod("second")).status["reason"] == "UnexpectedAdmissionError"
    assert await world.users(0) == ["first"]


async def test_a_fault_takes_the_card_out_of_service_and_leaves_its_pod_alone(world: World) -> None:
    await world.add_node(cards=2)
    generation = await world.order({0: TRAINING, 1: TRAINING})
    await world.start_pod("train")
    await world.phase("train", "Running")

    await edit_card(world.client, world.card(0), lambda machine, at: report_xid(machine, at, 31))
    await edit_card(world.client, world.card(0), lambda machine, at: report_xid(machine, at, 79))
    await world.healthy(0, "False", "XID79")
    await world.answered(generation, one=(TRAINING, [0, 1], 1))
    await world.offers(TRAINING, "2", "1")
    assert (await world.pod("train")).phase == "Running"
    assert await world.users(0) == ["train"]
    device = await world.client.get(GPUDevice, world.card(0))
    assert device.status.telemetry is not None
    assert device.status.telemetry.last_xid == 79

    await world.annotate(0, {Annotation.CLEAR_FAULT: "reset by hand"})
    await world.healthy(0, "True", "ProbePassed")
    await world.offers(TRAINING, "2", "2")
    assert Annotation.CLEAR_FAULT not in (await world.client.get(GPUDevice, world.card(0))).metadata.annotations


async def test_a_lost_card_does_not_come_back_because_somebody_says_so(world: World) -> None:
    await world.add_node(cards=1)
    await world.order({0: TRAINING})
    await edit_card(world.client, f"{world.node}/0000:18:00.0", lose)
    await world.healthy(0, "False", "LostFromBus")
    await world.annotate(0, {Annotation.CLEAR_FAULT: "looks fine"})

    async def heard() -> bool:
        return Annotation.CLEAR_FAULT not in (await world.client.get(GPUDevice, world.card(0))).metadata.annotations

    await until_async(heard)
    await world.healthy(0, "False", "LostFromBus")
    await edit_card(world.client, world.card(0), heal)
    await world.offers(TRAINING, "1", "1")


async def test_choices_survive_a_killed_fleet(world: World, fleet: Fleet) -> None:
    await world.add_node(cards=4)
    await world.order(dict.fromkeys(range(4), TRAINING))
    for name in ("one", "two", "three"):
        await world.start_pod(name)
        await world.phase(name, "Running")
    await world.end_pod("one")
    before = {name: card for name, card in (await world.all_users()).items() if name != "one"}
    await world.used_by(0, [])

    fleet.kill()
    await world.start_pod("four")
    generation = await world.order(dict.fromkeys(range(1, 4), TRAINING))
    fleet.start()
    await world.phase("four", "Running")
    after = await world.all_users()
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 3
    await world.answered(generation, one=(TRAINING, [1, 2, 3], 3))


async def test_a_node_that_registers_again_offers_and_publishes_the_same_cards(world: World) -> None:
    await world.add_node(cards=1)
    await world.order({0: TRAINING})
    await world.offers(TRAINING, "1", "1")
    before = await published(world)
    await world.client.delete(Node, world.node)
    await add_nodes(world.client, [world.node], new_machine("H200-141", 1))
    await world.offers(TRAINING, "1", "1")
    uid = (await world.client.get(Node, world.node)).metadata.uid

    async def owned_by_the_new_node() -> bool:
        now = await published(world)
        return now.metadata.owner_references[0].uid == uid and now.spec == before.spec

    await until_async(owned_by_the_new_node)


async def test_a_slow_node_reacts_late(world: World) -> None:
    await world.add_node(cards=1, slow=8.0)
    await world.healthy(0, "True", "ProbePassed")
    ordered_at = time.monotonic()
    await world.order({0: TRAINING})
    await world.offers(TRAINING, "1", "1")
    # What woke it a moment before the order came counts, too.
    assert time.monotonic() - ordered_at > 1.0


async def test_a_pod_on_a_simulated_node_without_cards_is_not_kept_waiting(world: World) -> None:
    await world.add_plain_node({"example.com/fpga": "1"})
    await world.start_pod("fpga", "example.com/fpga")
    await world.phase("fpga", "Running")


async def test_a_fleet_at_rest_writes_nothing(world: World, fleet: Fleet) -> None:
    await world.add_node(cards=4)
    generation = await world.order({0: TRAINING, 1: TRAINING})
    await world.answered(generation, one=(TRAINING, [0, 1], 2))
    await world.start_pod("train")
    await world.phase("train", "Running")
    fleet.stop()
    versions = await world.versions()
    fleet.start()
    await world.start_pod("second")
    await world.phase("second", "Running")
    changed = {key for key, version in (await world.versions()).items() if versions.get(key) != version}
    card = (await world.all_users())["second"]
    assert changed == {("GPUDevice", card)}
