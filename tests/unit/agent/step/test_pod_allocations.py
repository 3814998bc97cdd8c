"""The kubelet's device IDs become units and users again."""

from gpu_control_plane.agent.mig.units import slot_of, unit_id
from gpu_control_plane.agent.step.pod_allocations import CardRef, pod_allocations
from gpu_control_plane.agent.units import ContainerDevices, Unit, replica_id
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.rules.mig_layout import Slot
from unit.agent.step.builders import RESOURCE, first, hardware, uuid_of

CARD = first(hardware())
UUID = uuid_of(CARD)
REFS = {UUID: CardRef(CARD.id, CARD.hardware)}


def held(*ids: str, pod: str = "trainer") -> ContainerDevices:
    return ContainerDevices("team", pod, "main", RESOURCE, ids)


def test_each_kind_of_device_id_is_understood() -> None:
    instance = unit_id(UUID, "3g.71gb", 4)
    found = pod_allocations([held(UUID), held(replica_id(UUID, 3), pod="b"), held(instance, pod="c")], REFS)
    assert found.held == {
        Unit(RESOURCE, UUID, CARD.id): "team/trainer",
        Unit(RESOURCE, replica_id(UUID, 3), CARD.id, Mode.TIME_SLICE): "team/b",
        Unit(RESOURCE, instance, CARD.id, Mode.MIG, (4, 8)): "team/c",
    }


def test_other_plugins_devices_are_left_out() -> None:
    assert pod_allocations([ContainerDevices("team", "pod", "main", "example.com/nic", ("eth0",))], REFS).held == {}


def test_a_container_with_two_replicas_of_a_card_is_one_user_of_two_units() -> None:
    found = pod_allocations([held(replica_id(UUID, 0), replica_id(UUID, 1))], REFS)
    assert found.users == {
        CARD.id: (User(namespace="team", pod="trainer", container="main", resource=RESOURCE, units=2),)
    }


def test_an_instance_of_a_card_that_has_gone_counts_as_all_of_it() -> None:
    found = pod_allocations([held(unit_id(UUID, "1g.18gb", 3))], {UUID: CardRef(CARD.id, None)})
    (unit,) = found.held
    assert unit.slices == (3, 11)


def test_the_place_of_an_instance_is_read_from_its_unit() -> None:
    unit = Unit(RESOURCE, unit_id(UUID, "3g.71gb", 4), CARD.id, Mode.MIG, (4, 8))
    assert slot_of(unit) == Slot(4, 4, "3g.71gb")
    assert slot_of(Unit(RESOURCE, UUID, CARD.id)) is None
