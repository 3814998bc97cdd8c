"""The validator: a pod that runs one check after the other and is ready once all of them have passed. Other operands
wait for the files that it writes on the node.

Where our agent hands out the cards there is no NVIDIA device plugin, and `nvidia.com/gpu` need not be offered: a second
DaemonSet for these nodes leaves out the check that waits for it.
"""

from gpu_control_plane.api.nvidia.fields import Env
from gpu_control_plane.operator.node_facts import DEPLOY_VALIDATOR
from gpu_control_plane.operator.stack.common_settings import VALIDATOR_IMAGE
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.images import pull_policy
from gpu_control_plane.operator.stack.operands import device_plugin
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import (
    add_env,
    add_nri_devices,
    apply_operand_section,
    runtime_class_for,
    set_mig_strategy,
)
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class, with_agent_variants


def _variants(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    return with_agent_variants(render_input, by_runtime_class(render_input, name), DEPLOY_VALIDATOR)


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    policy = render_input.policy
    apply_operand_section(daemonset, policy.validator, render_input, image=VALIDATOR_IMAGE)
    runtime_class = runtime_class_for(render_input, variant)
    image = str(daemonset.main.manifest["image"])
    _prepare_workload(daemonset.container("cuda-validation"), render_input, image, runtime_class, policy.validator.cuda)
    if device_plugin.enabled(policy) and not variant.agent:
        plugin = daemonset.container("plugin-validation")
        set_mig_strategy(plugin, policy)
        _prepare_workload(plugin, render_input, image, runtime_class, policy.validator.plugin)
    else:
        daemonset.drop("plugin-validation")
    if policy.cdi.nri_plugin_enabled:
        add_nri_devices(daemonset, "toolkit-validation")


def _prepare_workload(
    step: ContainerManifest, render_input: RenderInput, image: str, runtime_class: str, section: Env | None
) -> None:
    """Settings of a check that starts a pod of its own."""
    validator = render_input.policy.validator
    step.set_env("VALIDATOR_IMAGE", image)
    step.set_env("VALIDATOR_IMAGE_PULL_POLICY", pull_policy(validator.image_pull_policy))
    if validator.image_pull_secrets:
        step.set_env("VALIDATOR_IMAGE_PULL_SECRETS", ",".join(validator.image_pull_secrets))
    if runtime_class:
        step.set_env("VALIDATOR_RUNTIME_CLASS", runtime_class)
    if section is not None:
        add_env(step, section.env)


STATE = StackState(
    name="state-operator-validation",
    enabled=lambda _policy: True,
    transform=_transform,
    variants=_variants,
    env=lambda policy: policy.validator.env,
    runtime_class=True,
)
