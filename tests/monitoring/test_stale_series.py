"""Whatever has happened, only what exists has series: as if the process had been started just now."""

from typing import Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.examples import NOON, device, node_state
from gpu_control_plane.api.gpudevice import BurnIn, DeviceState
from gpu_control_plane.api.gpupool import PoolPhase, PoolSpec, PoolStatus
from gpu_control_plane.api.names import DeviceCondition, NodeCondition
from gpu_control_plane.bootstrap.metrics import BootstrapMetrics
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.kube import Condition, Object
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.metrics import PoolMetrics, TroubleMetrics
from monitoring.fake_cache import FakeCache, series

REASONS: Final = ("Told", "Otherwise")


def _conditions(kinds: tuple[str, ...]) -> st.SearchStrategy[tuple[Condition, ...]]:
    one = st.builds(
        Condition,
        type=st.sampled_from(kinds),
        status=st.sampled_from(("True", "False", "Unknown")),
        reason=st.sampled_from(REASONS),
        last_transition_time=st.just(NOON),
    )
    return st.lists(one, unique_by=lambda held: held.type).map(tuple)


@st.composite
def _devices(draw: st.DrawFn) -> GPUDevice:
    made = device(draw(st.sampled_from(("w1", "w2"))), draw(st.integers(0, 1)))
    hardware = made.status.hardware
    assert hardware is not None
    status = msgspec.structs.replace(
        made.status,
        state=draw(st.none() | st.sampled_from(DeviceState)),
        hardware=draw(st.sampled_from((None, hardware, msgspec.structs.replace(hardware, product="L40S")))),
        conditions=draw(_conditions((DeviceCondition.HEALTHY, DeviceCondition.BURNED_IN))),
        burn_in=draw(st.sampled_from((None, BurnIn(uuid=hardware.uuid or ""), BurnIn(uuid="another")))),
    )
    return msgspec.structs.replace(made, status=status)


@st.composite
def _states(draw: st.DrawFn) -> GPUNodeState:
    made = node_state(draw(st.sampled_from(("w1", "w2"))))
    held = draw(_conditions(tuple(kind.value for kind in NodeCondition)))
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=held))


@st.composite
def _pools(draw: st.DrawFn) -> GPUPool:
    phase = draw(st.none() | st.sampled_from(PoolPhase))
    name = draw(st.sampled_from(("a", "b")))
    return GPUPool(metadata=ObjectMeta(name=name), spec=PoolSpec(), status=PoolStatus(phase=phase))


class World:
    """Everything that metrics of the controllers follow."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.devices, self.states, self.pools = FakeCache[GPUDevice](), FakeCache[GPUNodeState](), FakeCache[GPUPool]()
        InventoryMetrics(self.registry).follow(self.devices.cache, self.states.cache)
        BootstrapMetrics(self.registry).follow(self.states.cache)
        TroubleMetrics(self.registry).follow(self.devices.cache, self.pools.cache)
        PoolMetrics(self.registry, self.pools.cache)

    def put(self, new: Object) -> None:
        if isinstance(new, GPUDevice):
            self.devices.put(new)
        elif isinstance(new, GPUNodeState):
            self.states.put(new)
        elif isinstance(new, GPUPool):
            self.pools.put(new)

    def remove(self, gone: Object) -> None:
        if isinstance(gone, GPUDevice):
            self.devices.remove(gone.name)
        elif isinstance(gone, GPUNodeState):
            self.states.remove(gone.name)
        elif isinstance(gone, GPUPool):
            self.pools.remove(gone.name)

    @property
    def objects(self) -> tuple[Object, ...]:
        return (*self.devices.held.values(), *self.states.held.values(), *self.pools.held.values())

    @property
    def shown(self) -> dict[tuple[str, ...], float]:
        return series(self.registry)


HISTORIES: Final = st.lists(st.tuples(_devices() | _states() | _pools(), st.booleans()), max_size=30)


@settings(max_examples=150, deadline=None)
@given(HISTORIES)
def test_a_process_that_has_seen_it_all_shows_what_one_that_starts_now_would(
    history: list[tuple[Object, bool]],
) -> None:
    lived, fresh = World(), World()
    for item, stays in history:
        (lived.put if stays else lived.remove)(item)
    for item in lived.objects:
        fresh.put(item)
    assert lived.shown == fresh.shown


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_nothing_is_left_of_what_is_gone(history: list[tuple[Object, bool]]) -> None:
    world, empty = World(), World()
    for item, _ in history:
        world.put(item)
    for item in world.objects:
        world.remove(item)
    assert world.shown == empty.shown
