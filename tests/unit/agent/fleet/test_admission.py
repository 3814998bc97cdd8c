"""Which pods a simulated kubelet starts, with which devices."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.fleet.admission import Admission, admit
from gpu_control_plane.agent.fleet.pod_devices import (
    Grant,
    Request,
    Shortage,
    allocated,
    container_devices,
    grants,
    is_extended,
    requests,
)
from gpu_control_plane.agent.hardware_snapshot import probe_hardware
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.step import Allocatable
from gpu_control_plane.agent.units import ContainerDevices, Unit, replica_id
from gpu_control_plane.agent.views import NodeStatus, PodCondition, PodContainer, PodSpec, PodStatus, PodView, Resources
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.kube import ObjectMeta
from unit.agent.step.builders import NODE, machine, uuid_of

NOW = datetime(2026, 3, 2, tzinfo=UTC)
TRAINING = "gpu.deckhouse.io/training"
CARDS = probe_hardware(NODE, SimulatedBackend(NODE, machine(8))).observed
WHOLE = [Unit(TRAINING, uuid_of(card), card.id) for card in CARDS.values()]
REPLICAS = [
    Unit(TRAINING, replica_id(uuid_of(card), number), card.id, Mode.TIME_SLICE)
    for card in list(CARDS.values())[:2]
    for number in range(4)
]


def container(name: str, count: int = 1, *, resource: str = TRAINING, sidecar: bool = False) -> PodContainer:
    limits = {resource: str(count), "cpu": "1"}
    return PodContainer(name=name, resources=Resources(limits), restart_policy="Always" if sidecar else "")


def pod(name: str, *containers: PodContainer, first: tuple[PodContainer, ...] = (), phase: str = "Pending") -> PodView:
    return PodView(
        metadata=ObjectMeta(name=name, namespace="team", uid=name),
        spec=PodSpec(containers=containers or (container("main"),), init_containers=first),
        status=PodStatus(phase=phase),
    )


def after(given_pod: PodView, given: tuple[Grant, ...]) -> PodView:
    """The pod with the kubelet's decision written into it, as the API server would show it."""
    answer = msgspec.to_builtins(allocated(given_pod, given, NOW))
    condition = msgspec.convert(answer["status"]["conditions"][0], PodCondition)
    return msgspec.structs.replace(given_pod, status=PodStatus("Running", (condition,)))


def decide(*pods: PodView, units: list[Unit] = WHOLE, allocatable: str = "8") -> tuple[Admission, ...]:
    status = NodeStatus(allocatable={"example.com/other": allocatable})
    return admit(pods, Allocatable(units=frozenset(units)), CARDS, served={TRAINING}, status=status)


def ids(admission: Admission) -> list[str]:
    assert not isinstance(admission.outcome, Shortage)
    return [unit_id for grant in admission.outcome for unit_id in grant.ids]


def test_a_pod_gets_as_many_cards_as_it_asks_for() -> None:
    (admission,) = decide(pod("one", container("main", 3)))
    assert len(set(ids(admission))) == 3
    assert set(ids(admission)) <= {unit.id for unit in WHOLE}


def test_a_pod_keeps_what_it_was_given_after_a_restart() -> None:
    given = (Grant("main", TRAINING, (WHOLE[5].id,)),)
    restarted = after(pod("one"), given)
    assert decide(restarted) == ()
    assert grants(restarted) == given
    assert container_devices(restarted, given) == (ContainerDevices("team", "one", "main", TRAINING, (WHOLE[5].id,)),)


def test_a_pod_for_which_no_device_is_left_fails_as_with_a_kubelet() -> None:
    admissions = decide(pod("one"), pod("two"), units=WHOLE[:1])
    assert [type(each.outcome) for each in admissions] == [tuple, Shortage]


def test_a_unit_that_is_held_is_not_given_again() -> None:
    held = frozenset(WHOLE[:7])
    allocatable = Allocatable(units=frozenset(WHOLE), held=held)
    (admission,) = admit([pod("one")], allocatable, CARDS, served={TRAINING}, status=NodeStatus())
    assert ids(admission) == [WHOLE[7].id]


@pytest.mark.parametrize(("ignored", "chosen"), [(False, WHOLE[4:6]), (True, WHOLE[3:5])])
def test_several_cards_of_a_container_are_of_one_numa_node_where_the_pool_wishes_it(
    ignored: bool, chosen: list[Unit]
) -> None:
    """All eight are linked alike; the first four hang on one processor."""
    numa_ignored = frozenset(CARDS) if ignored else frozenset()
    allocatable = Allocatable(units=frozenset(WHOLE[3:6]), numa_ignored=numa_ignored)
    (admission,) = admit([pod("one", container("main", 2))], allocatable, CARDS, served={TRAINING}, status=NodeStatus())
    assert set(ids(admission)) == {unit.id for unit in chosen}


def test_a_pod_that_runs_already_is_never_failed() -> None:
    assert decide(pod("one", phase="Running"), units=[]) == ()


def test_a_pod_that_asks_for_no_device_is_not_touched() -> None:
    assert decide(pod("one", PodContainer(name="main"))) == ()


def test_a_resource_of_another_plugin_is_left_to_it() -> None:
    other = pod("one", container("main", resource="example.com/other"))
    assert [each.outcome for each in decide(other)] == [()]
    (refused,) = decide(other, allocatable="0")
    assert isinstance(refused.outcome, Shortage)


def test_replicas_of_a_card_are_given_one_by_one() -> None:
    admissions = decide(*(pod(f"pod-{number}") for number in range(9)), units=REPLICAS)
    given_out = [unit_id for each in admissions[:8] for unit_id in ids(each)]
    assert sorted(given_out) == sorted(unit.id for unit in REPLICAS)
    assert isinstance(admissions[8].outcome, Shortage)


def test_two_replicas_for_one_container_are_of_two_cards() -> None:
    (admission,) = decide(pod("one", container("main", 2)), units=REPLICAS)
    assert len({unit_id.partition("::")[0] for unit_id in ids(admission)}) == 2


def test_init_containers_use_the_devices_of_the_others() -> None:
    loading = container("load", 3)
    assert requests(pod("one", container("main", 2), first=(loading,))) == (
        Request("main", TRAINING, 2),
        Request("load", TRAINING, 1),
    )
    assert requests(pod("one", container("main", 3), first=(loading,))) == (Request("main", TRAINING, 3),)


def test_sidecars_hold_devices_of_their_own() -> None:
    asked = requests(pod("one", container("main"), first=(container("proxy", sidecar=True),)))
    assert asked == (Request("proxy", TRAINING, 1), Request("main", TRAINING, 1))


def test_only_names_with_a_domain_of_their_own_are_devices() -> None:
    names = {"cpu": False, "hugepages-2Mi": False, TRAINING: True, "a.kubernetes.io/b": False, "kubernetes.io/b": False}
    assert {name: is_extended(name) for name in names} == names


@given(st.lists(st.integers(1, 4), max_size=6), st.integers(0, 8))
def test_no_device_is_given_twice_and_a_pod_gets_all_or_nothing(counts: list[int], cards: int) -> None:
    pods = [pod(f"pod-{number}", container("main", count)) for number, count in enumerate(counts)]
    admissions = decide(*pods, units=WHOLE[:cards])
    given_out = [unit_id for each in admissions if not isinstance(each.outcome, Shortage) for unit_id in ids(each)]
    assert len(given_out) == len(set(given_out))
    assert len(admissions) == len(pods)
    for admission, count in zip(admissions, counts, strict=True):
        assert isinstance(admission.outcome, Shortage) or len(ids(admission)) == count


def test_a_shortage_says_what_was_wanted_and_what_there_is() -> None:
    (admission,) = decide(pod("one", container("main", 3)), units=WHOLE[:1])
    assert str(admission.outcome).startswith(f"the pod was bound here for 3 of {TRAINING}, but 1 can be handed out")
