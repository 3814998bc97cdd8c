"""Broken cards and phases of pools have series for as long as they last, and no longer."""

from collections.abc import Callable
from typing import Any, cast

from prometheus_client import CollectorRegistry

from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.gpudevice import DeviceSpec, DeviceState, DeviceStatus
from gpu_control_plane.api.gpupool import PoolPhase, PoolSpec, PoolStatus
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.pools.metrics import TroubleMetrics


class Changes:
    """The part of a cache that metrics follow."""

    def __init__(self) -> None:
        self.tell: Callable[[Any, Any], None] = lambda _old, _new: None

    def on_change(self, tell: Callable[[Any, Any], None]) -> None:
        self.tell = tell


def followed() -> tuple[CollectorRegistry, Changes, Changes]:
    registry, devices, pools = CollectorRegistry(), Changes(), Changes()
    TroubleMetrics(registry).follow(cast("Cache[GPUDevice]", devices), cast("Cache[GPUPool]", pools))
    return registry, devices, pools


def series(registry: CollectorRegistry) -> set[tuple[str, ...]]:
    return {tuple(sample.labels.values()) for family in registry.collect() for sample in family.samples}


def card(state: DeviceState, reason: str = "") -> GPUDevice:
    held = (condition((), DeviceCondition.HEALTHY, False, reason, now=utc_now()),) if reason else ()
    return GPUDevice(
        metadata=ObjectMeta(name="w1-0"),
        spec=DeviceSpec(node_name="w1", pci_address="0000:18:00.0"),
        status=DeviceStatus(state=state, conditions=held),
    )


def pool(phase: PoolPhase) -> GPUPool:
    return GPUPool(metadata=ObjectMeta(name="training"), spec=PoolSpec(), status=PoolStatus(phase=phase))


def test_a_faulted_card_is_told_with_its_reason_until_it_is_well() -> None:
    registry, devices, _ = followed()
    well, broken = card(DeviceState.ASSIGNED), card(DeviceState.FAULTED, "XID79")
    devices.tell(None, well)
    assert not series(registry)
    devices.tell(well, broken)
    assert series(registry) == {("w1", "w1-0", "XID79")}
    worse = card(DeviceState.FAULTED, "LostFromBus")
    devices.tell(broken, worse)
    assert series(registry) == {("w1", "w1-0", "LostFromBus")}
    devices.tell(worse, well)
    assert not series(registry)


def test_a_card_that_is_pulled_while_it_is_broken_leaves_nothing_behind() -> None:
    registry, devices, _ = followed()
    broken = card(DeviceState.FAULTED)
    devices.tell(None, broken)
    assert series(registry) == {("w1", "w1-0", "Unknown")}
    devices.tell(broken, None)
    assert not series(registry)


def test_a_pool_is_in_one_phase() -> None:
    registry, _, pools = followed()
    pools.tell(None, pool(PoolPhase.PENDING))
    pools.tell(pool(PoolPhase.PENDING), pool(PoolPhase.MISCONFIGURED))
    assert series(registry) == {("training", "Misconfigured")}
    pools.tell(pool(PoolPhase.MISCONFIGURED), None)
    assert not series(registry)
