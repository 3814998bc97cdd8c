"""Which ClusterPolicy is active, and what it asks: the oldest, then the first by name. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.stored import ReadSpec, StoredClusterPolicy, UnreadableSpec

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class ParsedPolicy(msgspec.Struct, frozen=True):
    """A ClusterPolicy with its spec, if that can be read. `problem` says why it cannot be carried out."""

    policy: StoredClusterPolicy
    read: ReadSpec[ClusterPolicySpec] | None
    problem: str = ""

    @property
    def spec(self) -> ClusterPolicySpec | None:
        return self.read.spec if self.read is not None else None


def oldest_policy(policies: Iterable[StoredClusterPolicy]) -> StoredClusterPolicy | None:
    """The active one. One that is being deleted is not active any more."""
    candidates = [policy for policy in policies if not policy.deleting]
    return min(
        candidates, key=lambda policy: (policy.metadata.creation_timestamp or _LONG_AGO, policy.name), default=None
    )


def parse_active_policy(policies: Iterable[StoredClusterPolicy]) -> ParsedPolicy | None:
    """The active one, and whether it can be carried out."""
    found = oldest_policy(policies)
    return parse_policy(found) if found is not None else None


def parse_policy(policy: StoredClusterPolicy) -> ParsedPolicy:
    """What a policy asks for, or why it cannot be carried out."""
    try:
        read = policy.read()
    except UnreadableSpec as error:
        return ParsedPolicy(policy, None, str(error))
    return ParsedPolicy(policy, read, contradiction(read.spec))


def contradiction(spec: ClusterPolicySpec) -> str:
    """Which settings of a spec exclude each other. Our schema refuses them; NVIDIA's, where it is installed, does
    not."""
    if not spec.cdi.nri_plugin_enabled:
        return ""
    if not spec.cdi.enabled:
        return "cdi.nriPluginEnabled needs cdi.enabled: the NRI plugin hands out cards by CDI"
    if spec.toolkit.enabled is False:
        return "cdi.nriPluginEnabled needs toolkit.enabled: the NRI plugin is a part of the toolkit"
    return ""


def uses_driver_crd(spec: ClusterPolicySpec | None) -> bool:
    """Whether drivers come from NVIDIADrivers. Without a ClusterPolicy they do: no object says otherwise."""
    return spec is None or on(spec.driver.use_nvidia_driver_crd, absent=False)
