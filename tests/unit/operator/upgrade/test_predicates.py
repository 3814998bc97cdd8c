"""Which changes wake upgrades: what an operand's pod or our agent reports beyond the driver must not."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Key
from gpu_control_plane.operator.upgrade.predicates import agent_changed, driver_or_validator, node_of


def pod(labels: dict[str, str], node: str = "worker") -> Pod:
    return msgspec.convert({"metadata": {"name": "pod", "labels": labels}, "spec": {"nodeName": node}}, Pod)


def agent_state(**status: Any) -> GPUNodeState:
    return msgspec.convert({"metadata": {"name": "worker"}, "status": status}, GPUNodeState)


@pytest.mark.parametrize(
    ("labels", "wakes"),
    [
        ({"app": "nvidia-driver-daemonset"}, True),
        ({PodLabel.COMPONENT: "nvidia-driver"}, True),
        ({"openshift.driver-toolkit": "true"}, True),
        ({"app": "nvidia-operator-validator"}, True),
        ({"app": "nvidia-dcgm-exporter"}, False),
        ({}, False),
    ],
)
def test_only_pods_that_bring_or_check_a_driver_wake_upgrades(labels: dict[str, str], wakes: bool) -> None:
    assert driver_or_validator(None, pod(labels)) is wakes
    assert driver_or_validator(pod(labels), None) is wakes
    assert driver_or_validator(pod(labels), pod({})) is wakes


def test_a_pod_concerns_the_node_it_is_bound_to() -> None:
    assert list(node_of(pod({}))) == [Key("worker")]
    assert list(node_of(pod({}, node=""))) == []


def test_of_the_agents_status_only_what_it_says_about_the_driver_wakes_upgrades() -> None:
    before = agent_state()
    assert not agent_changed(before, agent_state(deviceCount=8))
    assert agent_changed(before, agent_state(quiesced={"since": "2026-03-02T12:00:00Z", "reason": "paused"}))
    assert agent_changed(before, agent_state(validation={"driverVersion": "580.95.05"}))
    assert agent_changed(before, agent_state(driver={"version": "580.95.05", "source": "Host"}))
