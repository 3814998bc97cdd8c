"""The kubelet's names become units and users again."""

from gpu_control_plane.agent.kubelet.podresources import Held
from gpu_control_plane.agent.mig.layout import Slot
from gpu_control_plane.agent.mig.units import unit_id
from gpu_control_plane.agent.node.books import Place, read_books, slot_of, starting, unsettled
from gpu_control_plane.agent.node.views import LocalPod, LocalPodStatus
from gpu_control_plane.agent.units import Unit, replica_id
from gpu_control_plane.agent.views import Container, PodCondition, PodSpec, Resources
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.node.scenes import RESOURCE, first, picture, uuid_of

SEEN = first(picture())
UUID = uuid_of(SEEN)
PLACES = {UUID: Place(SEEN.id, SEEN.hardware)}


def held(*ids: str, pod: str = "trainer") -> Held:
    return Held("team", pod, "main", RESOURCE, ids)


def pod(*, phase: str = "Running", init: bool = False, initialized: bool = True, restart_policy: str = "") -> LocalPod:
    asking = Container(name="main", resources=Resources(limits={RESOURCE: "1"}), restart_policy=restart_policy)
    conditions = (PodCondition(type="Initialized", status="True"),) if initialized else ()
    return LocalPod(
        metadata=ObjectMeta(name="trainer", namespace="team"),
        spec=PodSpec(containers=() if init else (asking,), init_containers=(asking,) if init else ()),
        status=LocalPodStatus(phase=phase, conditions=conditions),
    )


def test_each_kind_of_name_is_understood() -> None:
    instance = unit_id(UUID, "3g.71gb", 4)
    books = read_books([held(UUID), held(replica_id(UUID, 3), pod="b"), held(instance, pod="c")], PLACES)
    assert books.held == {
        Unit(RESOURCE, UUID, SEEN.id): "team/trainer",
        Unit(RESOURCE, replica_id(UUID, 3), SEEN.id, Mode.TIME_SLICE): "team/b",
        Unit(RESOURCE, instance, SEEN.id, Mode.MIG, (4, 8)): "team/c",
    }


def test_other_plugins_devices_are_left_out() -> None:
    assert read_books([Held("team", "pod", "main", "example.com/nic", ("eth0",))], PLACES).held == {}


def test_a_container_with_two_turns_of_a_card_is_one_user_of_two_units() -> None:
    books = read_books([held(replica_id(UUID, 0), replica_id(UUID, 1))], PLACES)
    assert books.users == {
        SEEN.id: (User(namespace="team", pod="trainer", container="main", resource=RESOURCE, units=2),)
    }


def test_an_instance_of_a_card_that_has_gone_counts_as_all_of_it() -> None:
    books = read_books([held(unit_id(UUID, "1g.18gb", 3))], {UUID: Place(SEEN.id, None)})
    (unit,) = books.held
    assert unit.slices == (3, 11)


def test_the_place_of_an_instance_is_read_from_its_unit() -> None:
    unit = Unit(RESOURCE, unit_id(UUID, "3g.71gb", 4), SEEN.id, Mode.MIG, (4, 8))
    assert slot_of(unit) == Slot(4, 4, "3g.71gb")
    assert slot_of(Unit(RESOURCE, UUID, SEEN.id)) is None


def test_init_containers_hold_what_the_books_do_not_show() -> None:
    assert starting([pod(phase="Pending", init=True, initialized=False)]) == {RESOURCE}
    assert starting([pod(phase="Pending", init=True, initialized=True)]) == set()
    assert starting([pod(phase="Failed", init=True, initialized=False)]) == set()
    assert starting([pod(phase="Pending", init=True, initialized=False, restart_policy="Always")]) == set()
    assert starting([pod(phase="Pending", initialized=False)]) == set()


def test_books_that_do_not_know_a_living_pod_are_about_to_change() -> None:
    nothing, something = read_books([], PLACES), read_books([held(UUID)], PLACES)
    assert unsettled([pod()], nothing, {RESOURCE})
    assert not unsettled([pod()], something, {RESOURCE})
    assert unsettled([pod(phase="Succeeded")], something, {RESOURCE})
    assert not unsettled([pod()], nothing, {"another.com/resource"})
