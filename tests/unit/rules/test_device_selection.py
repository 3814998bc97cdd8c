"""Which cards a selector takes, criterion by criterion."""

import msgspec
import pytest

from gpu_control_plane.api.deviceselector import CapabilityRange, DeviceCriteria, DeviceSelector, MemoryRange
from gpu_control_plane.api.examples import device
from gpu_control_plane.api.gpudevice import DeviceStatus, GPUDevice, Vendor
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.rules.device_selection import selects

H200 = device(node="worker-3", index=4)
LABELS = {"zone": "a"}


def pool(selector: DeviceSelector | None) -> GPUPool:
    return GPUPool(metadata=ObjectMeta(name="p"), spec=PoolSpec(device_selector=selector))


def including(**criteria: object) -> DeviceSelector:
    return DeviceSelector(include=DeviceCriteria(**criteria))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (None, True),
        (DeviceSelector(), True),
        (including(vendors=(Vendor.NVIDIA,)), True),
        (including(vendors=(Vendor.AMD,)), False),
        (including(products=("NVIDIA H200",)), True),
        (including(products=("*h200*",)), True),
        (including(products=("NVIDIA H?00",)), True),
        (including(products=("NVIDIA H[12]00",)), False),
        (including(products=("*A100*", "*H200*")), True),
        (including(products=("*A100*",)), False),
        (including(memory_mib=MemoryRange(min=143771, max=143771)), True),
        (including(memory_mib=MemoryRange(min=143772)), False),
        (including(memory_mib=MemoryRange(max=80000)), False),
        (including(compute_capability=CapabilityRange(min="9.0")), True),
        (including(compute_capability=CapabilityRange(min="8.9", max="10.0")), True),
        (including(compute_capability=CapabilityRange(min="10.0")), False),
        (including(mig_capable=True), True),
        (including(mig_capable=False), False),
        (including(inventory_ids=(H200.name,)), True),
        (including(inventory_ids=("worker-4-0000-18-00-0",)), False),
        (including(vendors=(Vendor.NVIDIA,), mig_capable=False), False),
        (DeviceSelector(exclude=DeviceCriteria(vendors=(Vendor.AMD,))), True),
        (DeviceSelector(exclude=DeviceCriteria(vendors=(Vendor.AMD,), products=("*H200*",))), False),
        (DeviceSelector(node_selector=LabelSelector(match_labels={"zone": "a"})), True),
        (DeviceSelector(node_selector=LabelSelector(match_labels={"zone": "b"})), False),
    ],
)
def test_a_selector_takes_exactly_the_cards_it_describes(selector: DeviceSelector | None, taken: bool) -> None:
    assert selects(pool(selector), H200, LABELS) is taken


def without(**facts: None) -> GPUDevice:
    assert H200.status.hardware is not None
    hardware = msgspec.structs.replace(H200.status.hardware, **facts)
    return msgspec.structs.replace(H200, status=DeviceStatus(hardware=hardware))


@pytest.mark.parametrize(
    ("card", "selector"),
    [
        (msgspec.structs.replace(H200, status=DeviceStatus()), None),
        (without(memory_mib=None), including(memory_mib=MemoryRange(min=1))),
        (without(compute_capability=None), including(compute_capability=CapabilityRange(max="99.0"))),
    ],
)
def test_what_a_card_does_not_tell_cannot_be_in_its_favour(card: GPUDevice, selector: DeviceSelector | None) -> None:
    assert not selects(pool(selector), card, LABELS)
