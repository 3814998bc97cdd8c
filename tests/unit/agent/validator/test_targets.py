"""A kernel runs only on cards that no pod and no program uses."""

import pytest

from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.agent.validator.targets import Target, targets
from gpu_control_plane.api.gpudevice import PCI, Hardware, MIGCapability, Vendor

HERE = "0000:18:00.0"


def card(*, cut: bool = False, uuid: str | None = "GPU-1") -> Hardware:
    pci = PCI(vendor="10de", device="2335", class_="0302", address=HERE)
    mig = MIGCapability(capable=True, enabled=cut)
    return Hardware(vendor=Vendor.NVIDIA, product="NVIDIA H200", uuid=uuid, pci=pci, mig=mig)


def instance(number: int) -> Instance:
    return Instance(
        profile="1g.18gb", start=number, size=1, uuid=f"MIG-{number}", gpu_instance=number, compute_instance=0
    )


@pytest.mark.parametrize(
    ("hardware", "instances", "in_use", "faulted", "device", "obstacle"),
    [
        (card(), (), (), (), "GPU-1", None),
        (card(uuid=None), (), (), (), HERE, None),
        (card(), (), (HERE,), (), "GPU-1", "in use"),
        (card(), (), (), (HERE,), "GPU-1", "faulted"),
        (card(), (), (HERE,), (HERE,), "GPU-1", "faulted"),
        (card(cut=True), (), (), (), "GPU-1", "without a MIG instance"),
        (card(cut=True), (instance(1), instance(2)), ("MIG-1",), (), "MIG-2", None),
        (card(cut=True), (instance(1),), ("MIG-1",), (), "GPU-1", "in use"),
    ],
)
def test_a_card_is_tested_when_it_is_free_and_well(
    *,
    hardware: Hardware,
    instances: tuple[Instance, ...],
    in_use: tuple[str, ...],
    faulted: tuple[str, ...],
    device: str,
    obstacle: str | None,
) -> None:
    found = targets([hardware], {HERE: instances}, in_use, faulted)
    assert found == (Target(address=HERE, device=device, obstacle=obstacle),)
