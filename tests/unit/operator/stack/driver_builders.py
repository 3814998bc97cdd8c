"""Driver pods as a ClusterPolicy asks for them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.operands.driver import STATE
from gpu_control_plane.operator.stack.render import RenderedState, render_state
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from unit.api.nvidia.stock import stock_policy

NAMESPACE = "gpu-operator"
KERNEL = "6.8.0-60-generic"
UBUNTU = NodeKind(system=OperatingSystem("ubuntu", "24.04"), kernel=KERNEL)
OLD_UBUNTU = NodeKind(system=OperatingSystem("ubuntu", "22.04"), kernel=KERNEL)
RHEL = NodeKind(system=OperatingSystem("rhel", "9.4"), kernel="5.14.0-427.13.1.el9_4.x86_64")
SLES = NodeKind(system=OperatingSystem("sles", "15-SP6"), kernel="6.4.0-150600.23-default")
CRIO_RHEL = NodeKind(system=OperatingSystem("rhel", "9.4"), runtime=ContainerRuntime.CRIO)
COREOS = NodeKind(
    system=OperatingSystem("rhcos", "4.18"), ostree="418.94.202501221327-0", runtime=ContainerRuntime.CRIO
)
NEXT_COREOS = NodeKind(
    system=OperatingSystem("rhcos", "4.19"), ostree="419.96.202506041327-0", runtime=ContainerRuntime.CRIO
)
NAMELESS = NodeKind()


def policy(driver: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]) -> ClusterPolicySpec:
    """The stock policy, with the driver's section and others changed key by key."""
    spec = stock_policy()["spec"]
    for section, values in {"driver": driver or {}, **sections}.items():
        spec[section] = {**spec.get(section, {}), **values}
    return msgspec.convert(spec, ClusterPolicySpec)


def rendered(spec: ClusterPolicySpec, *kinds: NodeKind, **platform: Any) -> RenderedState:
    """The state on one node of each kind; on an Ubuntu node if none is named."""
    held = dict.fromkeys(kinds or (UBUNTU,), 1)
    return render_state(STATE, RenderInput(policy=spec, platform=Platform(namespace=NAMESPACE, **platform), kinds=held))


def drivers(spec: ClusterPolicySpec, *kinds: NodeKind, **platform: Any) -> dict[str, DaemonSetManifest]:
    """The DaemonSets by name."""
    result = rendered(spec, *kinds, **platform)
    assert not result.problem
    found = [DaemonSetManifest(manifest) for manifest in result.manifests if manifest["kind"] == "DaemonSet"]
    return {daemonset.name: daemonset for daemonset in found}


def driver(spec: ClusterPolicySpec, *kinds: NodeKind, **platform: Any) -> DaemonSetManifest:
    """The only DaemonSet."""
    (found,) = drivers(spec, *kinds, **platform).values()
    return found


def mounts(made: DaemonSetManifest, container: str = "nvidia-driver-ctr") -> dict[str, str]:
    """What a container mounts: path to the folder of the host, the ConfigMap or the Secret behind it."""
    found = {}
    for mount in made.container(container).manifest["volumeMounts"]:
        volume = made.volume(mount["name"])
        source = volume.get("hostPath") or volume.get("configMap") or volume.get("secret") or {}
        found[mount["mountPath"]] = source.get("path") or source.get("name") or source.get("secretName") or "emptyDir"
    return found


def problem(spec: ClusterPolicySpec, *kinds: NodeKind, **platform: Any) -> str:
    return rendered(spec, *kinds, **platform).problem
