"""Everything that rendering depends on besides the assets. Pure data, taken at one moment."""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import NodeKind


class CannotRender(ValueError):
    """The policy asks for something that cannot be; the message says what to change."""


class OpenShift(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the OpenShift cluster this runs in."""

    version: str = ""
    proxy: Mapping[str, str] = {}
    """HTTP_PROXY, HTTPS_PROXY and NO_PROXY, those that are set."""
    proxy_ca: bool = False
    toolkit_images: Mapping[str, str] = {}
    """Image of the Driver Toolkit for each version of Red Hat CoreOS."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster around the policy is like."""

    namespace: str
    images: Mapping[str, str] = {}
    """Environment variables that name images: DRIVER_IMAGE and so on."""
    service_monitors: bool = False
    """Whether the cluster knows ServiceMonitors."""
    openshift: OpenShift | None = None
    config_maps: Mapping[str, Mapping[str, str]] = {}
    """ConfigMaps of the namespace, by name: those that a policy refers to are mounted key by key."""
    secrets: frozenset[str] | None = None
    """Names of the namespace's Secrets; None where nobody knows them, and then nobody misses one."""
    held: Mapping[str, str] = {}
    """The variant that each DaemonSet with a plain name is for at present."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, the nodes it is for, and the cluster they are in."""

    policy: ClusterPolicySpec
    platform: Platform
    kinds: Mapping[NodeKind, int] = {}
    """How many GPU nodes there are of each kind."""

    @property
    def openshift(self) -> OpenShift | None:
        return self.platform.openshift
