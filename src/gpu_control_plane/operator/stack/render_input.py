"""Everything that rendering depends on besides the assets. Pure data, taken at one moment."""

from collections.abc import Mapping, Set

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import NodeKind
from gpu_control_plane.operator.openshift import OpenShift


class RenderError(ValueError):
    """The policy asks for something that cannot be rendered; the message says what to change."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, as far as rendering depends on it."""

    namespace: str
    """Where operands run."""
    images: Mapping[str, str] = {}
    """Environment variables that name images: DRIVER_IMAGE and so on."""
    service_monitors: bool = False
    """Whether the cluster knows ServiceMonitors."""
    openshift: OpenShift | None = None
    config_maps: Mapping[str, Mapping[str, str]] = {}
    """ConfigMaps of the namespace, by name: those that a policy refers to are mounted key by key."""
    missing_secrets: Set[str] = frozenset()
    """Secrets that drivers name and the namespace does not have."""
    current_variants: Mapping[str, str] = {}
    """The variant that each DaemonSet of the cluster is for, by name."""


class RenderInput(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, the nodes it is for, and the cluster they are in."""

    policy: ClusterPolicySpec
    platform: Platform
    kinds: Mapping[NodeKind, int] = {}
    """How many GPU nodes there are of each kind."""

    @property
    def openshift(self) -> OpenShift | None:
        return self.platform.openshift
