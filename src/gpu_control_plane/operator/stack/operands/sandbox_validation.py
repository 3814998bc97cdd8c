"""The sandbox validator, which checks that a node is ready for virtual machines; the device plugins wait for it."""

from gpu_control_plane.operator.stack.common_settings import VALIDATOR_IMAGE
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.operands import cc_manager
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import add_env, apply_operand_section, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    policy, validator = render_input.policy, render_input.policy.validator
    apply_operand_section(daemonset, validator, render_input, image=VALIDATOR_IMAGE)
    if not cc_manager.STATE.enabled(policy):  # the check waits for a file that only the CC manager writes
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


STATE = StackState(
    name="state-sandbox-validation",
    enabled=sandbox_enabled,
    transform=_transform,
    env=lambda policy: policy.validator.env,
)
