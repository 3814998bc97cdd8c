"""Broken cards, failed tests and phases of pools have series for as long as they last, and no longer."""

import msgspec
from prometheus_client import CollectorRegistry

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpudevice import BurnIn, DeviceSpec, DeviceState, DeviceStatus
from gpu_control_plane.api.gpupool import Capacity, GPUPool, Maintenance, PoolPhase, PoolSpec, PoolStatus
from gpu_control_plane.api.names import DeviceCondition, Reason
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.pools.metrics import PoolMetrics, TroubleMetrics
from monitoring.fake_cache import FakeCache, series

UNITS = Capacity(name="gpu.deckhouse.io/training", total=8, used=3, reserved=0, available=5, faulted=0)


class MetricsEnv:
    """Troubles of cards and pools, and what is shown of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.devices = FakeCache[GPUDevice]()
        self.pools = FakeCache[GPUPool]()
        self.capacity = PoolMetrics(self.registry, self.pools.cache)
        TroubleMetrics(self.registry).follow(self.devices.cache, self.pools.cache)

    def shown(self, *names: str) -> dict[tuple[str, ...], float]:
        return series(self.registry, *names)


def card(state: DeviceState, reason: str = "") -> GPUDevice:
    held = (condition((), DeviceCondition.HEALTHY, False, reason, now=utc_now()),) if reason else ()
    return _card(DeviceStatus(state=state, conditions=held))


def after_test(status: bool | None, reason: Reason, *, uuid: str = "GPU-a") -> GPUDevice:
    """A card with the UUID `GPU-a`, and the burn-in result of the card with this UUID."""
    held = (condition((), DeviceCondition.BURNED_IN, status, reason, now=utc_now()),)
    return _card(
        DeviceStatus(
            state=DeviceState.UNASSIGNED,
            conditions=held,
            hardware=msgspec.structs.replace(h200("w1", 0, 0), uuid="GPU-a"),
            burn_in=BurnIn(uuid=uuid),
        )
    )


def pool(phase: PoolPhase) -> GPUPool:
    return GPUPool(metadata=ObjectMeta(name="training"), spec=PoolSpec(), status=PoolStatus(phase=phase))


def _card(status: DeviceStatus) -> GPUDevice:
    spec = DeviceSpec(node_name="w1", pci_address="0000:18:00.0")
    return GPUDevice(metadata=ObjectMeta(name="w1-0"), spec=spec, status=status)


def test_a_faulted_card_has_a_series_with_its_reason_until_it_recovers() -> None:
    env = MetricsEnv()
    env.devices.put(card(DeviceState.ASSIGNED))
    assert not env.shown("gpu_device_faulted")
    for reason in ("XID79", "LostFromBus"):
        env.devices.put(card(DeviceState.FAULTED, reason))
        assert env.shown("gpu_device_faulted") == {("gpu_device_faulted", "w1", "w1-0", reason): 1}
    env.devices.put(card(DeviceState.ASSIGNED))
    assert not env.shown("gpu_device_faulted")


def test_a_card_that_is_pulled_while_it_is_broken_leaves_nothing_behind() -> None:
    env = MetricsEnv()
    env.devices.put(card(DeviceState.FAULTED))
    assert env.shown("gpu_device_faulted") == {("gpu_device_faulted", "w1", "w1-0", "Unknown"): 1}
    env.devices.remove("w1-0")
    assert not env.shown("gpu_device_faulted")


def test_a_card_that_fails_its_burn_in_has_a_series_until_it_is_tested_again() -> None:
    env = MetricsEnv()
    env.devices.put(after_test(None, Reason.BURNING_IN))
    assert env.shown("gpu_burn_in_devices") == {("gpu_burn_in_devices", "BurningIn"): 1}
    assert not env.shown("gpu_device_burn_in_failed")
    env.devices.put(after_test(False, Reason.MEMORY_ERRORS))
    failed = {("gpu_device_burn_in_failed", "w1", "w1-0", "MemoryErrors"): 1}
    assert env.shown("gpu_device_burn_in_failed") == failed
    env.devices.put(after_test(None, Reason.BURN_IN_WAITING))
    assert not env.shown("gpu_device_burn_in_failed")
    env.devices.put(after_test(True, Reason.BURN_IN_PASSED))
    assert env.shown("gpu_burn_in_devices") == {("gpu_burn_in_devices", "Passed"): 1}


def test_another_card_in_the_place_of_one_that_failed_has_not_failed() -> None:
    env = MetricsEnv()
    env.devices.put(after_test(False, Reason.TOO_HOT, uuid="GPU-of-old"))
    assert not env.shown("gpu_device_burn_in_failed")


def test_cards_without_a_burn_in_have_no_series() -> None:
    env = MetricsEnv()
    env.devices.put(card(DeviceState.ASSIGNED))
    assert not env.shown("gpu_burn_in_devices", "gpu_device_burn_in_failed")


def test_a_pool_is_in_one_phase() -> None:
    env = MetricsEnv()
    for phase in (PoolPhase.PENDING, PoolPhase.MISCONFIGURED):
        env.pools.put(pool(phase))
    assert env.shown("gpupool_phase") == {("gpupool_phase", "training", "Misconfigured"): 1}
    env.pools.remove("training")
    assert not env.shown("gpupool_phase")


def test_a_pool_in_maintenance_shows_its_deadline() -> None:
    env = MetricsEnv()
    began = utc_now()
    under_way = Maintenance(since=began, reason="", units_in_use=0, nodes_done=0, nodes_total=1, deadline=began)
    status = PoolStatus(phase=PoolPhase.MAINTENANCE, maintenance=under_way)
    env.pools.put(msgspec.structs.replace(pool(PoolPhase.READY), status=status))
    name = "gpupool_maintenance_deadline_timestamp_seconds"
    assert env.shown(name) == {(name, "training"): began.timestamp()}
    env.pools.put(pool(PoolPhase.READY))
    assert not env.shown(name)


def test_the_capacity_of_a_deleted_pool_is_removed_on_every_replica() -> None:
    """Nobody has to count it once more: the replica may not lead when the pool goes, and lead again later."""
    env = MetricsEnv()
    env.pools.put(pool(PoolPhase.READY))
    env.capacity.capacity("training", (UNITS,))
    assert env.shown("gpupool_capacity_used") == {("gpupool_capacity_used", "training", UNITS.name): 3}
    env.pools.remove("training")
    assert not [name for name, *_ in env.shown() if name.startswith("gpupool_capacity")]


def test_a_resource_that_a_pool_no_longer_offers_is_shown_no_longer() -> None:
    env = MetricsEnv()
    env.pools.put(pool(PoolPhase.READY))
    for name in ("one", "other"):
        env.capacity.capacity("training", (msgspec.structs.replace(UNITS, name=name),))
    assert env.shown("gpupool_capacity_used") == {("gpupool_capacity_used", "training", "other"): 3}


def test_a_count_that_ends_after_its_pool_shows_nothing() -> None:
    env = MetricsEnv()
    env.capacity.capacity("training", (UNITS,))
    assert not [name for name, *_ in env.shown() if name.startswith("gpupool_capacity")]
