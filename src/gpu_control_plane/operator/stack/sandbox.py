"""When the operands for virtual machines are there. Pure."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import Operand, on


def deployed(policy: ClusterPolicySpec, section: Operand | None = None, *, mode: SandboxMode | None = None) -> bool:
    """Whether virtual machines are wanted at all, run by `mode` if one is given, and the section is switched on."""
    sandbox = policy.sandbox_workloads
    if not on(sandbox.enabled, absent=False) or (mode is not None and sandbox.mode != mode):
        return False
    return section is None or on(section.enabled, absent=False)
