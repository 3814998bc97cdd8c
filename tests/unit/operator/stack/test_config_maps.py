"""A ConfigMap that a policy names is there, or the policy says which one is missing, from where, and what to do."""

from typing import Any

import pytest

from gpu_control_plane.operator.stack.operands import (
    dcgm_exporter,
    device_plugin,
    gpu_feature_discovery,
    mig_manager,
    mps_control_daemon,
    vgpu_device_manager,
)
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.states import StackState
from unit.operator.stack import container_builders, sandbox_builders

_SHARING = {"devicePlugin": {"config": {"name": "absent"}}}
_LAYOUTS = {"vgpuDeviceManager": {"config": {"name": "absent"}}}


@pytest.mark.parametrize(
    ("state", "sections", "field"),
    [
        (device_plugin.STATE, _SHARING, "devicePlugin.config"),
        (mps_control_daemon.STATE, _SHARING, "devicePlugin.config"),
        (gpu_feature_discovery.STATE, _SHARING, "devicePlugin.config"),
        (dcgm_exporter.STATE, {"dcgmExporter": {"config": {"name": "absent"}}}, "dcgmExporter.config"),
        (mig_manager.STATE, {"migManager": {"config": {"name": "absent"}}}, "migManager.config"),
        (
            mig_manager.STATE,
            {"migManager": {"gpuClientsConfig": {"name": "absent"}}},
            "migManager.gpuClientsConfig",
        ),
        (vgpu_device_manager.STATE, _LAYOUTS, "vgpuDeviceManager.config"),
    ],
)
def test_a_config_map_that_does_not_exist_is_named(state: StackState, sections: dict[str, Any], field: str) -> None:
    sandbox = state is vgpu_device_manager.STATE
    scene = (
        sandbox_builders.render_input(sandbox_builders.policy(**sections))
        if sandbox
        else container_builders.render_input(**sections)
    )
    found = render_state(state, scene)
    assert found.problem == (f"the ConfigMap absent, which {field} names, is not in namespace gpu-operator: create it")
    assert not found.manifests


def test_a_config_map_without_the_key_that_is_read_is_named() -> None:
    sections: dict[str, Any] = {"dcgmExporter": {"config": {"name": "metrics"}}}
    found = render_state(
        dcgm_exporter.STATE, container_builders.render_input(config_maps={"metrics": {"x": ""}}, **sections)
    )
    assert found.problem == (
        "the ConfigMap metrics, which dcgmExporter.config names, has no key dcgm-metrics.csv: add it"
    )
