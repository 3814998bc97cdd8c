"""When the driver is let go of, whose device plugins are in the way, and which labels are ours."""

import pytest

from gpu_control_plane.agent.node.labelling import held, label_facts
from gpu_control_plane.agent.node.quiesce import pause_reason
from gpu_control_plane.agent.node.rivals import rivals
from gpu_control_plane.agent.vendors.nvidia.labels import labels
from unit.agent.node.scenes import picture


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({}, None),
        ({"nvidia.com/gpu.deploy.device-plugin": "true"}, None),
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}, "paused-for-driver-upgrade"),
        ({"nvidia.com/gpu.deploy.device-plugin": "agent_paused-for-driver-upgrade"}, "paused-for-driver-upgrade"),
        ({"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}, "paused-for-mig-change"),
        ({"gpu.deckhouse.io/deploy.agent": "paused-for-driver-upgrade"}, "paused-for-driver-upgrade"),
        ({"example.com/mood": "paused-for-lunch"}, None),
    ],
)
def test_the_driver_is_let_go_of_when_somebody_asks_for_it(labels: dict[str, str], reason: str | None) -> None:
    assert pause_reason(labels) == reason


@pytest.mark.parametrize(
    ("allocatable", "ours", "found"),
    [
        ({"cpu": "8", "gpu.deckhouse.io/training": "2"}, {"gpu.deckhouse.io/training"}, ()),
        ({"nvidia.com/gpu": "8"}, set(), ("nvidia.com/gpu",)),
        ({"nvidia.com/gpu": "0"}, set(), ()),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu"}, ()),
        ({"nvidia.com/gpu": "8", "nvidia.com/mig-1g.18gb": "7"}, {"nvidia.com/gpu"}, ("nvidia.com/mig-1g.18gb",)),
        ({"volcano.sh/vgpu-number": "10"}, set(), ("volcano.sh/vgpu-number",)),
        ({"example.com/nic": "4"}, set(), ()),
    ],
)
def test_only_plugins_for_cards_are_rivals(allocatable: dict[str, str], ours: set[str], found: tuple[str, ...]) -> None:
    assert rivals(allocatable, ours) == found


def test_only_the_labels_of_feature_discovery_are_ours_to_change() -> None:
    ours = {
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/cuda.driver-version.full": "580.159.04",
        "nvidia.com/mig-1g.18gb.count": "7",
        "nvidia.com/mig-1g.18gb.engines.copy": "1",
        "nvidia.com/gfd.timestamp": "1",
    }
    others = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.workload.config": "container",
        "nvidia.com/vgpu.config": "default",
        "nvidia.com/mig.config": "all-1g.18gb",
        "nvidia.com/mig.config.state": "success",
        "kubernetes.io/hostname": "node-a",
    }
    assert held(ours | others) == ours


def test_every_label_we_write_is_ours_to_change() -> None:
    written = labels(label_facts(picture(), "a machine", ()), {}, 1.0)
    assert len(written) > 20
    assert held(written) == written
