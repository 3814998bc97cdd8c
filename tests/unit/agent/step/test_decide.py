"""What one step leads to: the order of its questions, and what each answer means for the kubelet and the API server."""

import msgspec
import pytest

from gpu_control_plane.agent.simulated.machine import heal, overheat, report_xid
from gpu_control_plane.agent.step import NodeMemory, RecoveryPolicy, Stage, StepSettings, decide
from gpu_control_plane.api.names import Annotation, DeviceCondition, Label, Reason
from gpu_control_plane.api.scheduling import NUMA
from gpu_control_plane.kube.conditions import find
from unit.agent.step.builders import RESOURCE, exclusive, time_sliced
from unit.agent.step.node_model import NodeModel

OTHER = "gpu.deckhouse.io/serving"
PAUSED = {"gpu.deckhouse.io/deploy.agent": "paused-for-driver-upgrade"}


def healthy(node: NodeModel, index: int = 0) -> tuple[str, str] | None:
    found = find(node.device(node.cards[index]).status.conditions, DeviceCondition.HEALTHY)
    return (found.status, found.reason) if found is not None else None


def pooled(node: NodeModel) -> NodeModel:
    node.order(*map(exclusive, node.cards))
    node.step()
    return node


def test_before_the_first_probe_only_the_pause_is_answered() -> None:
    node = NodeModel()
    node.label(**PAUSED)
    plan = decide(msgspec.structs.replace(node.snapshot(), hardware=None), NodeMemory())
    assert (plan.stage, plan.paused, plan.plugin) == (Stage.UNPROBED, "paused-for-driver-upgrade", None)


def test_ordered_cards_are_advertised_and_reported() -> None:
    node = pooled(NodeModel())
    assert [resource for resource, _ in node.free] == [RESOURCE, RESOURCE]
    assert healthy(node) == ("True", "ProbePassed")
    assert node.state.status.plugin is not None
    assert node.state.status.plugin.observed_generation == node.state.metadata.generation
    assert node.step().reports == (), "nothing is written twice"


def test_a_kubelet_that_does_not_answer_leaves_everything_as_it_is_but_faults_are_reported() -> None:
    node = pooled(NodeModel())
    node.allocate(*node.free_on(node.cards[0])[0], "trainer")
    node.step()
    node.change(report_xid(node.backend.machine, node.hardware.observed[node.cards[0]].address, 79))
    plan = node.step(kubelet=False)
    assert (plan.stage, plan.plugin, plan.look_again) == (Stage.KUBELET_AWAY, None, 1.0)
    assert healthy(node) == ("False", "XID79")
    assert [user.pod for user in node.device(node.cards[0]).status.used_by] == ["trainer"], "as it was last known"


def test_the_kubelet_is_told_first_when_units_leave_and_last_when_they_join() -> None:
    node = NodeModel()
    node.order(exclusive(node.cards[0]))
    assert not node.step().kubelet_first
    node.order(exclusive(node.cards[0], OTHER))
    leaving = [node.settle(steps=1) for _ in range(3)]
    assert [(plan.removed, plan.kubelet_first) for plan in leaving] == [(False, False), (False, False), (True, True)]
    assert leaving[-1].carried_out is None
    assert not node.step().kubelet_first
    assert [resource for resource, _ in node.free] == [OTHER]


@pytest.mark.parametrize("paused_first", [True, False])
def test_while_it_is_paused_nothing_can_be_allocated_and_nothing_is_forgotten(paused_first: bool) -> None:
    node = NodeModel()
    if not paused_first:
        pooled(node)
    node.label(**PAUSED)
    node.order(*map(exclusive, node.cards))
    plan = node.step()
    assert (plan.paused, plan.kubelet_first, node.free, plan.reports) == ("paused-for-driver-upgrade", True, [], ())
    assert len(node.advertised) == (0 if paused_first else 2)
    node.label()
    node.step()
    assert len(node.free) == 2


def test_a_conflicting_plugin_stops_allocation_until_it_is_gone() -> None:
    node = pooled(NodeModel())
    node.show_on_node(**{"nvidia.com/gpu": "8"})
    plan = node.step()
    assert plan.plugin is not None
    assert (plan.plugin.conflicts, node.free) == (("nvidia.com/gpu",), [])
    node.show_on_node(**{"nvidia.com/gpu": "0"})
    node.step()
    assert len(node.free) == 2


def test_without_a_checkpoint_an_init_container_may_hold_any_unit() -> None:
    node = NodeModel()
    node.order(exclusive(node.cards[0]))
    node.step()
    node.order()
    node.step()
    snapshot = node.snapshot()
    assert snapshot.kubelet is not None
    kubelet = msgspec.structs.replace(snapshot.kubelet, checkpoint=None)
    plan = decide(msgspec.structs.replace(snapshot, kubelet=kubelet, monotonic=9999.0), node.memory)
    assert set(plan.held.values()) == {"perhaps an init container"}
    assert plan.memory.advertised, "it stays listed"
    assert plan.send_again, "the kubelet writes its checkpoint after every list"


def test_an_allocation_in_flight_counts_as_held() -> None:
    node = NodeModel()
    node.order(exclusive(node.cards[0]))
    node.step()
    node.in_flight = frozenset(node.advertised)
    node.order(exclusive(node.cards[0], OTHER))
    node.settle()
    assert {unit.resource for unit in node.advertised} == {RESOURCE}
    node.in_flight = frozenset()
    node.settle()
    assert {unit.resource for unit in node.advertised} == {OTHER}


def test_a_card_out_of_service_is_not_advertised() -> None:
    node = NodeModel()
    first = node.devices[0]
    metadata = msgspec.structs.replace(first.metadata, labels={str(Label.IGNORE): "true"})
    node.devices = (msgspec.structs.replace(first, metadata=metadata), *node.devices[1:])
    pooled(node)
    assert {unit.card for unit in node.advertised} == {node.cards[1]}


def test_a_kubelet_that_has_not_taken_a_list_in_is_looked_at_again_for_a_while() -> None:
    node = NodeModel()
    node.order(exclusive(node.cards[0]))
    assert node.step(hears=False).look_again == 1.0
    assert node.memory.unconfirmed_since is not None
    node.pass_time(31)
    assert node.step(hears=False).look_again is None
    node.step()
    assert node.step().memory.unconfirmed_since is None


class TestRecovery:
    """A card falls at once and returns slowly."""

    def fallen(self) -> NodeModel:
        node = pooled(NodeModel(settings=StepSettings(recovery=RecoveryPolicy(seconds=60.0, probes=3))))
        self.address = node.hardware.observed[node.cards[0]].address
        node.change(overheat(node.backend.machine, self.address))
        plan = node.step()
        assert healthy(node) == ("False", "Overheated")
        assert [report.new_fault for report in plan.reports] == ["Overheated"]
        return node

    def test_a_faulted_card_is_listed_as_unhealthy_and_not_withdrawn(self) -> None:
        node = self.fallen()
        assert len(node.advertised) == 2
        assert len(node.free) == 1

    def test_it_returns_after_several_good_probes_over_some_time(self) -> None:
        node = self.fallen()
        node.change(heal(node.backend.machine, self.address))
        plan = node.step()
        assert plan.next_probe is not None
        for _ in range(2):
            assert healthy(node) == ("False", "Overheated")
            node.pass_time(30)
            node.probe()
            node.step()
        assert healthy(node) == ("True", "ProbePassed")
        assert len(node.free) == 2

    def test_steps_between_two_probes_are_no_proof(self) -> None:
        node = self.fallen()
        node.change(heal(node.backend.machine, self.address))
        for _ in range(10):
            node.pass_time(60)
            node.step()
        assert healthy(node) == ("False", "Overheated")

    def test_a_restart_of_the_agent_heals_nothing(self) -> None:
        node = self.fallen()
        node.change(heal(node.backend.machine, self.address))
        node.restart()
        node.step()
        assert healthy(node) == ("False", "Overheated")

    def test_a_person_who_clears_the_fault_brings_it_back_at_once(self) -> None:
        node = self.fallen()
        node.change(heal(node.backend.machine, self.address))
        node.probe(cleared=(node.cards[0],))
        node.step()
        assert healthy(node) == ("True", "ProbePassed")

    def test_an_error_that_comes_again_after_it_was_cleared_is_a_new_one(self) -> None:
        node = pooled(NodeModel())
        address = node.hardware.observed[node.cards[0]].address
        node.change(report_xid(node.backend.machine, address, 95))
        node.step()
        node.probe(cleared=(node.cards[0],))
        node.step()
        assert healthy(node) == ("True", "ProbePassed")
        node.change(report_xid(node.backend.machine, address, 95))
        node.step()
        assert healthy(node) == ("False", "XID95")


class TestBurnIn:
    """A card is tested only while no pod needs it, and no pod gets one that was not tested."""

    def node(self, **tests: object) -> NodeModel:
        node = NodeModel(settings=StepSettings(unpooled="nvidia.com/gpu"))
        enabled = msgspec.structs.replace(node.burn_in, enabled=True, ready=True, seconds=60.0, **tests)
        node.burn_in = enabled
        return node

    def reasons(self, node: NodeModel) -> dict[str, tuple[str, str]]:
        plan = node.plan
        assert plan is not None
        return {card: (each.reason, each.message) for card, each in plan.burn_ins.items() if each is not None}

    def test_new_cards_are_tested_and_not_advertised_before(self) -> None:
        node = self.node()
        node.step()  # What an earlier agent advertised is not known before the first step.
        plan = node.step()
        assert plan.burn_in_starts.keys() == set(node.cards)
        assert {reason for reason, _ in self.reasons(node).values()} == {Reason.BURNING_IN}
        assert node.free == []
        assert {find(each.status.conditions, "BurnedIn").reason for each in node.devices} == {"BurningIn"}  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("prepare", "said"),
        [
            (lambda node: node.order(exclusive(node.cards[0])), "in a pool"),
            (lambda node: node.change(overheat(node.backend.machine, "0000:18:00.0")), "has a fault"),
            (lambda node: setattr(node, "burn_in", msgspec.structs.replace(node.burn_in, checked=False)), "checks"),
            (
                lambda node: setattr(
                    node, "burn_in", msgspec.structs.replace(node.burn_in, obstacles={_uuid(node): "A program"})
                ),
                "A program",
            ),
            (lambda node: setattr(node, "devices", node.devices[1:]), ""),
        ],
        ids=["in a pool", "faulted", "not checked", "occupied", "unknown to the API server"],
    )
    def test_a_card_that_cannot_be_tested_waits_and_says_for_what(self, prepare: object, said: str) -> None:
        node = self.node()
        node.step()
        prepare(node)  # type: ignore[operator]
        plan = node.step()
        assert node.cards[0] not in plan.burn_in_starts
        assert said in self.reasons(node).get(node.cards[0], ("", ""))[1]

    def test_a_card_in_use_is_not_tested(self) -> None:
        node = NodeModel(settings=StepSettings(unpooled="nvidia.com/gpu"))
        node.step()
        node.allocate(*node.free_on(node.cards[0])[0], "trainer")
        node.burn_in = msgspec.structs.replace(node.burn_in, enabled=True, ready=True)
        plan = node.step()
        assert node.cards[0] not in plan.burn_in_starts
        assert "in use by one" in self.reasons(node)[node.cards[0]][1]

    def test_a_card_in_mig_mode_is_not_tested(self) -> None:
        node = self.node()
        node.step()
        node.backend.set_mig_mode(node.hardware.observed[node.cards[0]].address, enabled=True)
        node.probe()
        plan = node.step()
        assert node.cards[0] not in plan.burn_in_starts
        assert "MIG mode" in self.reasons(node)[node.cards[0]][1]

    def test_a_card_in_its_pool_before_is_left_alone_also_after_it_has_left(self) -> None:
        node = self.node()
        first = node.devices[0]
        annotations = {str(Annotation.ASSIGNMENT): "training"}
        approved = msgspec.structs.replace(
            first, metadata=msgspec.structs.replace(first.metadata, annotations=annotations)
        )
        node.devices = (approved, *node.devices[1:])
        node.order(exclusive(node.cards[0]))
        node.step()
        assert self.reasons(node)[node.cards[0]][0] == Reason.IN_SERVICE
        node.order()
        node.settle()
        assert self.reasons(node)[node.cards[0]][0] == Reason.IN_SERVICE

    def test_a_card_under_test_is_not_advertised_even_if_it_is_ordered(self) -> None:
        node = self.node()
        node.step()
        node.step()
        node.burn_in = msgspec.structs.replace(node.burn_in, running={_uuid(node): "It runs."})
        node.order(time_sliced(node.cards[0], 2))
        node.step()
        assert node.cards[0] not in {unit.card for unit in node.advertised}


def _uuid(node: NodeModel) -> str:
    return node.hardware.observed[node.cards[0]].hardware.uuid or ""


def test_while_the_driver_hangs_nothing_is_allocatable_and_pods_keep_their_cards() -> None:
    node = NodeModel()
    node.order(*(exclusive(card) for card in node.cards))
    node.step()
    resource, unit_id = node.free[0]
    node.allocate(resource, unit_id, "trainer")
    plan = decide(msgspec.structs.replace(node.snapshot(), driver_hung=True), node.memory)
    assert plan.allocatable.units == frozenset()
    assert {device.healthy for device in plan.device_lists[RESOURCE]} == {False}
    assert len(plan.device_lists[RESOURCE]) == 2
    assert plan.plugin is not None
    assert plan.plugin.driver_hung
    again = node.step()
    assert again.plugin is not None
    assert again.plugin.driver_hung is None
    assert len(again.allocatable.units) == 2


def test_the_kubelet_is_told_numa_nodes_unless_the_order_says_they_play_no_part() -> None:
    node = NodeModel()
    near, far = node.cards
    node.order(exclusive(near), msgspec.structs.replace(exclusive(far), numa=NUMA.IGNORED))
    plan = node.step()
    told = {device.id: device.numa for device in plan.device_lists[RESOURCE]}
    observed = node.hardware.observed
    assert told == {observed[near].hardware.uuid: observed[near].hardware.numa_node, observed[far].hardware.uuid: None}
    assert plan.allocatable.numa_ignored == {far}
