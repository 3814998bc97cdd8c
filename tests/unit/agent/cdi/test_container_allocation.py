import pytest

from gpu_control_plane.agent.cdi.container_allocation import (
    cdi_allocation,
    device_name,
    kubelet_allocation,
    runtime_allocation,
)
from gpu_control_plane.agent.cdi.edits import Edits, Hook, device_node_edits, merged
from gpu_control_plane.agent.cdi.injectable import InjectableDevice
from gpu_control_plane.agent.cdi.spec import Device
from gpu_control_plane.agent.kubelet.interface import ContainerAllocation, DeviceNode, Mount
from gpu_control_plane.agent.mig.units import unit_id
from gpu_control_plane.agent.units import replica_id
from unit.agent.cdi.builders import CARD, OTHER, common, device, node

_ONE = InjectableDevice(device(CARD, 0), CARD)
_TWO = InjectableDevice(device(OTHER, 1), OTHER)


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        (CARD, CARD),
        (replica_id(CARD, 3), CARD),
        (unit_id(CARD, "1g.18gb+me", 3), f"{CARD}:1g.18gb.me:3"),
    ],
)
def test_every_unit_has_its_device(unit: str, name: str) -> None:
    assert device_name(unit) == name


def test_with_cdi_a_container_gets_names_alone_and_each_once() -> None:
    names = [device_name(replica_id(CARD, 0)), device_name(replica_id(CARD, 1)), OTHER]

    assert cdi_allocation(names) == ContainerAllocation(
        cdi_devices=(f"gpu.deckhouse.io/gpu={CARD}", f"gpu.deckhouse.io/gpu={OTHER}")
    )


def test_without_cdi_a_container_gets_what_the_file_would_have_brought() -> None:
    grant = kubelet_allocation([_ONE, _TWO], common())

    assert grant == ContainerAllocation(
        devices=tuple(DeviceNode(path, path, "rw") for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1")),
        mounts=(Mount("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.580.159.04", read_only=True),),
        envs={"NVIDIA_VISIBLE_DEVICES": "void"},
    )


def test_instances_of_one_card_bring_its_file_once() -> None:
    def cut(number: int) -> InjectableDevice:
        path = f"/dev/nvidia-caps/nvidia-cap{number}"
        return InjectableDevice(
            Device(f"{CARD}:1g.18gb:{number}", device_node_edits([node(0), node(number, path)])), f"MIG-{number}"
        )

    grant = kubelet_allocation([cut(1), cut(2)], Edits())

    paths = [given.path for given in grant.devices]
    assert paths == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"]


def test_hooks_cannot_be_lost_unnoticed() -> None:
    hooked = merged([common(), Edits(hooks=(Hook(hook_name="createContainer", path="/usr/bin/nvidia-cdi-hook"),))])

    with pytest.raises(ValueError, match="hooks"):
        kubelet_allocation([_ONE], hooked)


def test_a_runtime_of_the_vendor_is_told_the_driver_s_names() -> None:
    cut = InjectableDevice(device(f"{CARD}:1g.18gb:0"), "MIG-77")

    assert runtime_allocation([_TWO, cut, cut], "NVIDIA_VISIBLE_DEVICES") == ContainerAllocation(
        envs={"NVIDIA_VISIBLE_DEVICES": f"{OTHER},MIG-77"}
    )
