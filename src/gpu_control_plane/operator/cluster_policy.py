"""Which ClusterPolicy is in force, and what it asks: the oldest, then the first by name. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.stored import ReadSpec, StoredClusterPolicy, UnreadableSpec

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


class InForce(msgspec.Struct, frozen=True):
    """The ClusterPolicy in force. Without a spec it cannot be carried out, and `problem` says why."""

    policy: StoredClusterPolicy
    read: ReadSpec[ClusterPolicySpec] | None
    problem: str = ""

    @property
    def spec(self) -> ClusterPolicySpec | None:
        return self.read.spec if self.read is not None else None


def winner(policies: Iterable[StoredClusterPolicy]) -> StoredClusterPolicy | None:
    """The one in force. One that is being deleted is no longer."""
    candidates = [policy for policy in policies if not policy.deleting]
    return min(candidates, key=lambda policy: (policy.metadata.creation_timestamp or _DAWN, policy.name), default=None)


def in_force(policies: Iterable[StoredClusterPolicy]) -> InForce | None:
    """The one in force, and whether it can be carried out."""
    found = winner(policies)
    return judged(found) if found is not None else None


def judged(policy: StoredClusterPolicy) -> InForce:
    """What a policy asks for, or why it cannot be carried out."""
    try:
        read = policy.read()
    except UnreadableSpec as error:
        return InForce(policy, None, str(error))
    return InForce(policy, read, problem_of(read.spec))


def problem_of(spec: ClusterPolicySpec) -> str:
    """What in a spec contradicts itself; the schema refuses it, unless another product's schema is installed."""
    if not spec.cdi.nri_plugin_enabled:
        return ""
    if not spec.cdi.enabled:
        return "cdi.nriPluginEnabled needs cdi.enabled: the NRI plugin hands out cards by CDI"
    if spec.toolkit.enabled is False:
        return "cdi.nriPluginEnabled needs toolkit.enabled: the NRI plugin is a part of the toolkit"
    return ""
