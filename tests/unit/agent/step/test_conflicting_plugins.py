"""A resource of GPUs that is not ours belongs to another plugin; what was ours is not, for a while."""

import pytest

from gpu_control_plane.agent.step.conflicting_plugins import conflicting_resources, own_resources
from gpu_control_plane.agent.vendors.registry import supported

UNPOOLED, OTHER = "nvidia.com/gpu", "nvidia.com/mig-1g.18gb"


@pytest.mark.parametrize(
    ("allocatable", "ours", "expected"),
    [
        ({"cpu": "8", "gpu.deckhouse.io/training": "2"}, {"gpu.deckhouse.io/training"}, ()),
        ({UNPOOLED: "8", "cpu": "64"}, set(), (UNPOOLED,)),
        ({UNPOOLED: "8"}, {UNPOOLED}, ()),
        ({UNPOOLED: "0"}, set(), ()),
        ({UNPOOLED: "8", OTHER: "7"}, {UNPOOLED}, (OTHER,)),
        ({"volcano.sh/vgpu-number": "10", OTHER: "1"}, {UNPOOLED}, (OTHER, "volcano.sh/vgpu-number")),
        ({"gpu.deckhouse.io/training": "2", "example.com/nic": "4"}, set(), ()),
        ({"nvidia.com/gpu.shared": "16"}, set(), ("nvidia.com/gpu.shared",)),
        ({"nvidia.com/hostdev": "8", "nvidia.com/rdma_shared_device_a": "63", "nvidia.com/gpunet": "1"}, set(), ()),
    ],
)
def test_resources_of_gpus_that_are_not_ours_conflict(
    allocatable: dict[str, str], ours: set[str], expected: tuple[str, ...]
) -> None:
    assert conflicting_resources(allocatable, ours, supported().values()) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), ()),
        (("nvidia.com/a100",), ("nvidia.com/a100",)),
        (("nvidia.com/team-",), ("nvidia.com/team-a",)),
        (("nvidia.com/",), ("nvidia.com/a100", "nvidia.com/hostdev", "nvidia.com/team-a")),
    ],
)
def test_people_may_name_more_resources(more: tuple[str, ...], expected: tuple[str, ...]) -> None:
    allocatable = {"nvidia.com/a100": "1", "nvidia.com/team-a": "1", "nvidia.com/hostdev": "1"}
    assert conflicting_resources(allocatable, set(), supported().values(), more) == expected


def test_a_withdrawn_resource_is_ours_for_as_long_as_the_kubelet_may_show_it() -> None:
    known = own_resources({}, [UNPOOLED], 1000.0)
    assert known.keys() == {UNPOOLED}
    known = own_resources(known, [OTHER], 1060.0)
    assert known.keys() == {UNPOOLED, OTHER}
    assert own_resources(known, [OTHER], 1121.0).keys() == {OTHER}, "another plugin shows it now"


def test_what_stays_advertised_stays_ours() -> None:
    known: dict[str, float] = {}
    for hour in range(10):
        known = own_resources(known, [UNPOOLED], 3600.0 * hour)
        assert known.keys() == {UNPOOLED}
