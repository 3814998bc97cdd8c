"""A unit stays with its pod for as long as the pod's processes run, whatever the kubelet remembers."""

import msgspec

from gpu_control_plane.agent.step import blocking_hold, decide
from gpu_control_plane.agent.step.advertising import UNUSED_CHECK_SECONDS
from gpu_control_plane.agent.step.holds import FORGOTTEN_GRACE_SECONDS
from gpu_control_plane.agent.units import Hold, Unit
from unit.agent.step.builders import RESOURCE, exclusive, uuid_of
from unit.agent.step.node_model import NodeModel

OTHER = "gpu.deckhouse.io/other"


def serving() -> NodeModel:
    """A node with one card in a pool, which a pod has."""
    node = NodeModel(cards=1)
    node.order(exclusive(node.cards[0]))
    node.step()
    node.allocate(RESOURCE, unit(node), "trainer")
    node.step()
    return node


def unit(node: NodeModel) -> str:
    return uuid_of(node.hardware.observed[node.cards[0]])


def test_a_card_of_a_pod_deleted_by_force_is_listed_as_unhealthy_until_its_processes_end() -> None:
    node = serving()
    node.delete_by_force("trainer")
    plan = node.step()
    assert (plan.send_again, plan.look_again) == (True, 0.5), "the checkpoint still has it"
    assert node.step().look_again == 1.0
    assert node.memory.forgotten_since, "the checkpoint has it no more"
    assert node.refused(RESOURCE, unit(node)), "before the kubelet is told"
    node.pass_time(FORGOTTEN_GRACE_SECONDS)
    node.step()
    assert node.free == []
    assert "still run" in node.problems[node.cards[0]]
    node.end_processes("trainer")
    node.step()
    assert node.free == [(RESOURCE, unit(node))]
    assert not node.problems


def test_a_pod_that_ends_soon_after_its_forced_deletion_never_makes_its_card_unhealthy() -> None:
    node = serving()
    node.delete_by_force("trainer")
    node.step()
    node.end_processes("trainer")
    node.pass_time(FORGOTTEN_GRACE_SECONDS / 2)
    node.step()
    assert node.free == [(RESOURCE, unit(node))]
    assert not node.refused(RESOURCE, unit(node))


def test_the_holds_outlive_a_lost_checkpoint_and_a_restart_of_the_agent() -> None:
    node = serving()
    node.lose_checkpoint()
    node.restart()
    node.step()
    node.pass_time(FORGOTTEN_GRACE_SECONDS)
    node.step()
    assert node.free == []


def test_a_card_of_a_pod_deleted_by_force_moves_to_no_other_resource() -> None:
    node = serving()
    node.delete_by_force("trainer")
    node.order(exclusive(node.cards[0], OTHER))
    node.settle()
    assert {each.resource for each in node.advertised} == {RESOURCE}
    node.end_processes("trainer")
    node.settle()
    assert node.free == [(OTHER, unit(node))]


def test_what_an_init_container_had_is_held_until_its_pod_ends_even_without_a_sandbox() -> None:
    node = NodeModel(cards=1)
    node.order(exclusive(node.cards[0]))
    node.step()
    node.allocate(RESOURCE, unit(node), "loader", init=True)
    node.end_processes("loader")
    node.order(exclusive(node.cards[0], OTHER))
    node.settle()
    assert {each.resource for each in node.advertised} == {RESOURCE}
    node.end_pod("loader")
    node.pass_time(5.0)
    node.settle(seconds=UNUSED_CHECK_SECONDS)
    assert {each.resource for each in node.advertised} == {OTHER}


def test_the_record_of_a_pod_that_has_ended_is_gone_once_the_kubelet_was_sent_a_list_again() -> None:
    node = serving()
    node.end_pod("trainer")
    assert node.step().send_again
    assert node.plan is not None
    assert set(node.plan.held) == node.advertised, "the checkpoint still has it"
    plan = node.step()
    assert (plan.send_again, plan.held, plan.look_again) == (False, {}, None)


def test_a_pod_that_the_kubelet_lists_is_not_forgotten_while_its_checkpoint_cannot_be_read() -> None:
    node = serving()
    snapshot = node.snapshot()
    assert snapshot.kubelet is not None
    unreadable = msgspec.structs.replace(snapshot, kubelet=msgspec.structs.replace(snapshot.kubelet, checkpoint=None))
    plan = decide(unreadable, node.memory)
    assert (plan.memory.holds, plan.memory.forgotten_since) == (node.memory.holds, {})
    assert plan.send_again


def test_a_kubelet_that_did_not_write_its_checkpoint_yet_is_waited_for() -> None:
    node = serving()
    node.end_pod("trainer")
    assert node.step(hears=False).send_again
    assert not node.step(hears=False).send_again, "it was sent a list just now"
    node.pass_time(5.0)
    assert node.step().send_again
    assert not node.step().held


def test_what_an_init_container_has_is_doubted_again_and_again_but_not_all_the_time() -> None:
    node = NodeModel(cards=1)
    node.order(exclusive(node.cards[0]))
    node.step()
    node.allocate(RESOURCE, unit(node), "loader", init=True)
    assert [node.step().send_again for _ in range(3)] == [True, False, False]
    node.pass_time(1.0)
    plan = node.step()
    assert (plan.send_again, plan.look_again) == (False, None), "its pod runs: a change is noticed"
    node.pass_time(5.0)
    assert node.step().send_again
    assert node.memory.holds, "it is held for as long as it is recorded"


def test_nothing_is_doubted_before_the_kubelet_has_recorded_what_it_was_just_given() -> None:
    node = NodeModel(cards=2)
    node.order(*map(exclusive, node.cards))
    node.step()
    ended, starting = sorted(node.advertised, key=lambda each: each.id)
    node.allocate(RESOURCE, ended.id, "trainer")
    node.step()
    node.end_pod("trainer")
    node.in_flight = frozenset({starting})
    assert not node.step().send_again
    node.in_flight = frozenset()
    assert node.step().send_again


def test_only_a_living_pod_on_a_clashing_unit_blocks() -> None:
    whole, other = Unit(RESOURCE, "GPU-a", "a"), Unit(RESOURCE, "GPU-b", "b")
    hold = Hold(whole, "uid-1", "team/trainer")
    assert blocking_hold(whole, {hold}, {"uid-1"}) == hold
    assert blocking_hold(whole, {hold}, set()) is None
    assert blocking_hold(other, {hold}, {"uid-1"}) is None
