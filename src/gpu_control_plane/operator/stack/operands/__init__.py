"""The states of the stack, one module each, in the order in which they build on each other."""

from typing import Final

from gpu_control_plane.operator.stack.operands import (
    cc_manager,
    container_toolkit,
    dcgm,
    dcgm_exporter,
    device_plugin,
    driver,
    gpu_feature_discovery,
    kata_device_plugin,
    kata_manager,
    mig_manager,
    mps_control_daemon,
    node_status_exporter,
    operator_metrics,
    operator_validation,
    prerequisites,
    sandbox_device_plugin,
    sandbox_validation,
    vfio_manager,
    vgpu_device_manager,
    vgpu_manager,
)
from gpu_control_plane.operator.stack.states import StackState

STATES: Final[tuple[StackState, ...]] = (
    prerequisites.STATE,
    operator_metrics.STATE,
    driver.STATE,
    container_toolkit.STATE,
    operator_validation.STATE,
    device_plugin.STATE,
    mps_control_daemon.STATE,
    dcgm.STATE,
    dcgm_exporter.STATE,
    gpu_feature_discovery.STATE,
    mig_manager.STATE,
    node_status_exporter.STATE,
    vgpu_manager.STATE,
    vgpu_device_manager.STATE,
    sandbox_validation.STATE,
    vfio_manager.STATE,
    sandbox_device_plugin.STATE,
    kata_device_plugin.STATE,
    kata_manager.STATE,
    cc_manager.STATE,
)
