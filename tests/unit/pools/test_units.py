"""What a card gives to a pool in every mode."""

import pytest

from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, ProfileCount, TimeSlice
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.units import card_resources, is_suitable

MIXED = MIG(layout=(ProfileCount(profile="3g.71gb", count=1), ProfileCount(profile="1g.18gb.me", count=1)))


def hardware(model: str) -> Hardware:
    (card,) = SimulatedBackend("worker-3", new_machine(model, 1)).cards()
    return card


def resources(model: str, allocation: PoolAllocation) -> list[tuple[str, int, str | None]]:
    pool = GPUPool(metadata=ObjectMeta(name="a"), spec=PoolSpec(allocation=allocation))
    given = card_resources(pool, allocation.canonical, hardware(model))
    assert bool(given) == is_suitable(allocation.canonical, hardware(model))
    return [(each.name.partition("/")[2], each.units, each.profile) for each in given]


@pytest.mark.parametrize(
    ("model", "allocation", "given"),
    [
        ("L40S", PoolAllocation(), [("a", 1, None)]),
        ("L40S", PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4)), [("a", 4, None)]),
        ("H200-141", PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb")), [("a", 7, "1g.18gb")]),
        ("H200-141", PoolAllocation(mode=Mode.MIG, mig=MIG(profile="3g.71gb")), [("a", 2, "3g.71gb")]),
        (
            "H200-141",
            PoolAllocation(mode=Mode.MIG, mig=MIXED),
            [("a.1g.18gb.me", 1, "1g.18gb+me"), ("a.3g.71gb", 1, "3g.71gb")],
        ),
        ("L40S", PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb")), []),
        ("A100-80", PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb")), []),
        (
            "H200-141",
            PoolAllocation(mode=Mode.MIG, mig=MIG(layout=(ProfileCount(profile="3g.71gb", count=3),))),
            [],
        ),
    ],
)
def test_a_card_gives_these_units(model: str, allocation: PoolAllocation, given: list[tuple[str, int, str]]) -> None:
    assert resources(model, allocation) == given


def test_the_same_division_in_two_spellings_is_equal() -> None:
    parts = tuple(reversed(MIXED.layout))
    other = MIG(layout=tuple(ProfileCount(profile=part.profile.replace(".me", "+me"), count=1) for part in parts))
    one = PoolAllocation(mode=Mode.MIG, mig=MIXED)
    assert one.canonical == PoolAllocation(mode=Mode.MIG, mig=other).canonical
    assert str(one.canonical) == "MIG 1x1g.18gb+me 1x3g.71gb"
