"""What is ours is no rival, what was ours is none for a while, and whoever takes it over is one in the end."""

import pytest

from gpu_control_plane.agent.node.rivals import Claims, rivals

UNPOOLED, OTHER = "nvidia.com/gpu", "nvidia.com/mig-1g.18gb"


class Watch:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("allocatable", "ours", "expected"),
    [
        ({UNPOOLED: "8", "cpu": "64"}, set(), (UNPOOLED,)),
        ({UNPOOLED: "8"}, {UNPOOLED}, ()),
        ({UNPOOLED: "0"}, set(), ()),
        ({"volcano.sh/vgpu-number": "10", OTHER: "1"}, {UNPOOLED}, (OTHER, "volcano.sh/vgpu-number")),
        ({"gpu.deckhouse.io/training": "2"}, set(), ()),
    ],
)
def test_resources_with_cards_that_are_not_ours_are_rivals(
    allocatable: dict[str, str], ours: set[str], expected: tuple[str, ...]
) -> None:
    assert rivals(allocatable, ours) == expected


def test_a_claim_outlives_the_offer_for_as_long_as_the_kubelet_may_need() -> None:
    watch = Watch()
    claims = Claims(watch)
    assert claims.renew([UNPOOLED]) == {UNPOOLED}
    watch.now += 60
    assert claims.renew([OTHER]) == {UNPOOLED, OTHER}
    watch.now += 61
    assert claims.renew([OTHER]) == {OTHER}, "who shows it now is somebody else"


def test_what_stays_on_offer_stays_ours() -> None:
    watch = Watch()
    claims = Claims(watch)
    for _ in range(10):
        assert claims.renew([UNPOOLED]) == {UNPOOLED}
        watch.now += 3600
