"""The sandbox validator: checks that a node is ready for virtual machines, and tells the device plugins so."""

from gpu_control_plane.operator.stack.common_settings import VALIDATOR_IMAGE, add_env, operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.operands import cc_manager
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    policy, validator = stage.policy, stage.policy.validator
    operand(daemonset, validator, stage, image=VALIDATOR_IMAGE)
    if not cc_manager.STATE.enabled(policy):  # nobody would write what the check waits for
        daemonset.drop("cc-manager-validation")
    steps = {
        "vfio-pci-validation": validator.vfio_pci,
        "vgpu-manager-validation": validator.vgpu_manager,
        "vgpu-devices-validation": validator.vgpu_devices,
    }
    for name, step in steps.items():
        container = daemonset.container(name)
        container.set_env("DEFAULT_GPU_WORKLOAD_CONFIG", policy.sandbox_workloads.default_workload.value)
        if step is not None:
            add_env(container, step.env)


STATE = State(
    name="state-sandbox-validation",
    enabled=deployed,
    transform=_transform,
    env=lambda policy: policy.validator.env,
)
