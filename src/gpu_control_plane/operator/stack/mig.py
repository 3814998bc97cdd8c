"""What an operand is told of MIG. Pure."""

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.choices import MIGStrategy
from gpu_control_plane.operator.stack.daemonset_manifest import Container


def tell_strategy(container: Container, policy: ClusterPolicySpec) -> None:
    """How instances are offered, if the policy says so."""
    if policy.mig is not None and policy.mig.strategy is not None:
        container.set_env("MIG_STRATEGY", policy.mig.strategy.value)


def tell_mig(container: Container, policy: ClusterPolicySpec) -> None:
    """How instances are offered; and unless they are not, that it may see all of them."""
    tell_strategy(container, policy)
    if policy.mig is None or policy.mig.strategy is not MIGStrategy.NONE:
        container.set_env("NVIDIA_MIG_MONITOR_DEVICES", "all")
