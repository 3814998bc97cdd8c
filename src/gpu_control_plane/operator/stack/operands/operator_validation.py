"""The validator: one check after the other, and a pod that is ready once all of them have passed. Others wait for the
files that it leaves on the node.

Where our agent hands out the cards there is no NVIDIA device plugin, and nobody has to offer `nvidia.com/gpu`: a second
DaemonSet for these nodes leaves out the check that waits for it.
"""

from gpu_control_plane.api.nvidia.fields import Env
from gpu_control_plane.operator.node_facts import VALIDATOR
from gpu_control_plane.operator.stack.common_settings import (
    VALIDATOR_IMAGE,
    add_env,
    give_cards,
    operand,
    runtime_class_of,
)
from gpu_control_plane.operator.stack.daemonset_manifest import Container, DaemonSet
from gpu_control_plane.operator.stack.images import pull_policy
from gpu_control_plane.operator.stack.mig import tell_strategy
from gpu_control_plane.operator.stack.operands import device_plugin
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, beside_agent, by_runtime_class


def _variants(stage: Stage, name: str) -> tuple[Variant, ...]:
    return beside_agent(stage, by_runtime_class(stage, name), VALIDATOR)


def _transform(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    policy = stage.policy
    operand(daemonset, policy.validator, stage, image=VALIDATOR_IMAGE)
    runtime_class = runtime_class_of(stage, variant)
    image = str(daemonset.main.manifest["image"])
    _prepare_workload(daemonset.container("cuda-validation"), stage, image, runtime_class, policy.validator.cuda)
    if device_plugin.enabled(policy) and not variant.agent:
        plugin = daemonset.container("plugin-validation")
        tell_strategy(plugin, policy)
        _prepare_workload(plugin, stage, image, runtime_class, policy.validator.plugin)
    else:
        daemonset.drop("plugin-validation")
    if policy.cdi.nri_plugin_enabled:
        give_cards(daemonset, "toolkit-validation")


def _prepare_workload(step: Container, stage: Stage, image: str, runtime_class: str, section: Env | None) -> None:
    """What a check needs to know to start a pod of its own."""
    validator = stage.policy.validator
    step.set_env("VALIDATOR_IMAGE", image)
    step.set_env("VALIDATOR_IMAGE_PULL_POLICY", pull_policy(validator.image_pull_policy))
    if validator.image_pull_secrets:
        step.set_env("VALIDATOR_IMAGE_PULL_SECRETS", ",".join(validator.image_pull_secrets))
    if runtime_class:
        step.set_env("VALIDATOR_RUNTIME_CLASS", runtime_class)
    if section is not None:
        add_env(step, section.env)


STATE = State(
    name="state-operator-validation",
    enabled=lambda _policy: True,
    transform=_transform,
    variants=_variants,
    env=lambda policy: policy.validator.env,
    runtime_class=True,
)
