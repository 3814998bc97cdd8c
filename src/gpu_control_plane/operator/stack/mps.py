"""Where the folder of MPS is on the host. Pure."""

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet


def move_mps(daemonset: DaemonSet, policy: ClusterPolicySpec) -> None:
    """Let an operand find the pipes and the shared memory of MPS where the policy wants them."""
    root = policy.device_plugin.mps.root.rstrip("/") if policy.device_plugin.mps else ""
    if not root:
        return
    daemonset.move_host_path("mps-root", root)
    daemonset.move_host_path("mps-shm", f"{root}/shm")
    if daemonset.main.env("MPS_ROOT") is not None:
        daemonset.main.set_env("MPS_ROOT", root)
