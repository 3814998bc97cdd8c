"""When the driver is released, and which labels are ours."""

import pytest

from gpu_control_plane.agent.node.labelling import feature_labels, label_facts
from gpu_control_plane.agent.step.pausing import pause_reason
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.api.gpudevice import Vendor
from unit.agent.step.builders import hardware


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
def test_the_driver_is_released_on_a_label_that_pauses_an_operand(labels: dict[str, str], reason: str | None) -> None:
    assert pause_reason(labels) == reason


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
    assert feature_labels(ours | others) == ours


def test_every_label_we_write_is_ours_to_change() -> None:
    written = support_of(Vendor.NVIDIA).labels(label_facts(hardware(), "a machine", ()), {}, 1.0)
    assert len(written) > 20
    assert feature_labels(written) == written
