"""What an operand that writes CDI files is told of CDI. Pure."""

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.daemonset_manifest import Container


def tell_cdi(container: Container, policy: ClusterPolicySpec) -> None:
    """That CDI is on, and where the toolkit keeps the program that runs when a container starts."""
    if not policy.cdi.enabled:
        return
    container.set_env("CDI_ENABLED", "true")
    if on(policy.toolkit.enabled, absent=True):
        folder = policy.toolkit.install_dir.rstrip("/")
        container.set_env("NVIDIA_CDI_HOOK_PATH", f"{folder}/toolkit/nvidia-cdi-hook")
