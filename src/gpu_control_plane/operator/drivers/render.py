"""Renders the objects of an NVIDIADriver for its nodes. Pure; a `RenderError` says what to change.

The pod is the same as of a ClusterPolicy's driver, except for owner, nodes and names.
"""

import copy
import re
from collections.abc import Iterable, Sequence
from typing import Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec, NVIDIADriverSpec
from gpu_control_plane.api.nvidia.choices import KernelModuleType
from gpu_control_plane.api.nvidia.names import DEPLOY, TRUE, NodeLabel, PodLabel
from gpu_control_plane.api.nvidia.nvidiadriver import DriverType, NVIDIADriver
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.operator.drivers.manager_image import note_template
from gpu_control_plane.operator.drivers.names import daemonset_name, object_name, probe_name, trusted_ca_name
from gpu_control_plane.operator.drivers.owner import ParsedDriver
from gpu_control_plane.operator.drivers.variants import driver_variants, kinds_of
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.apply_spec import apply_driver_spec
from gpu_control_plane.operator.stack.driver.digest import add_driver_digest
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec, check, from_driver
from gpu_control_plane.operator.stack.driver.openshift import TRUSTED_CA, trusted_ca
from gpu_control_plane.operator.stack.driver.variants import kernel_name
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.render import set_metadata
from gpu_control_plane.operator.stack.render_input import Platform, RenderError
from gpu_control_plane.operator.stack.transforms import MANAGER, add_env
from gpu_control_plane.operator.stack.variants import Variant

STATE: Final = "state-driver"
HOST_MANAGER: Final = "nvidia-vgpu-host-manager"
"""Component label of a vGPU host driver; other drivers have `nvidia-driver`."""

_ACCOUNT: Final = "nvidia-driver"
_PROBE: Final = "nvidia-driver-startup-probe"
_KERNEL: Final = "nvidia.com/precompiled.kernel-version"
_OPEN_ONLY: Final = (2, 17, 5)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_RESERVED: Final = "app.kubernetes.io/"


def render_driver(
    driver: ParsedDriver, nodes: Iterable[Node], platform: Platform, policy: ClusterPolicySpec | None
) -> list[Manifest]:
    """The objects of an NVIDIADriver for its nodes; none without nodes."""
    if driver.spec is None:
        raise RenderError(driver.problem)
    driver_spec = from_driver(driver.spec)
    check(driver_spec)
    _check_storage(driver_spec)
    variants = driver_variants(kinds_of(nodes), driver_spec, platform, policy)
    made: dict[tuple[str, str], Manifest] = {}
    for variant in variants:
        for manifest in _objects(driver, driver.spec, driver_spec, variant, platform=platform, policy=policy):
            made[manifest["kind"], manifest["metadata"]["name"]] = manifest
    for manifest in made.values():
        set_metadata(manifest, STATE, platform.namespace, controlled_by(NVIDIADriver.resource, driver.name, driver.uid))
    return list(made.values())


def _check_storage(driver_spec: DriverSpec) -> None:
    """Since 2.17.5 GPUDirect Storage works with open modules only. An image without a version number counts as
    newer."""
    gds = driver_spec.gds
    if gds is None or driver_spec.modules is KernelModuleType.OPEN:
        return
    found = _VERSION.match(gds.version)
    if found is None or tuple(int(part) for part in found.groups()) >= _OPEN_ONLY:
        raise RenderError(
            f"gds {gds.version or gds.image} needs the open kernel modules: set kernelModuleType to open,"
            " or use a gds older than v2.17.5"
        )


def _objects(
    driver: ParsedDriver,
    spec: NVIDIADriverSpec,
    driver_spec: DriverSpec,
    variant: Variant,
    *,
    platform: Platform,
    policy: ClusterPolicySpec | None,
) -> list[Manifest]:
    account = object_name(driver_spec.type, driver.name, variant)
    names = {_ACCOUNT: account, _PROBE: probe_name(driver.name), TRUSTED_CA: trusted_ca_name(driver.name)}
    found = trusted_ca(assets(STATE, openshift=platform.openshift is not None), platform.openshift)
    for manifest in found:
        _rename(manifest, names)
        if manifest["kind"] == "DaemonSet":
            daemonset = DaemonSetManifest(manifest)
            apply_driver_spec(daemonset, driver_spec, variant, platform)
            _rename_sources(daemonset, names)
            _set_identity(daemonset, driver, spec, driver_spec, variant)
            if driver_spec.type is DriverType.VGPU_HOST_MANAGER:
                _as_host_driver(daemonset)
            _set_host_root(daemonset, policy)
            _set_priority(daemonset, spec, policy)
            add_env(daemonset.main, driver_spec.env)
            add_driver_digest(daemonset)
            note_template(manifest, spec.manager)
    if driver_spec.type is DriverType.VGPU_HOST_MANAGER:
        found = [manifest for manifest in found if manifest["metadata"]["name"] != names[_PROBE]]
    return found


def _rename(manifest: Manifest, names: dict[str, str]) -> None:
    """Give an object, and the objects it refers to, the names of this NVIDIADriver."""
    for holder in (manifest["metadata"], manifest.get("roleRef", {}), *manifest.get("subjects", ())):
        if holder.get("name") in names:
            holder["name"] = names[holder["name"]]
    for rule in manifest.get("rules") or ():
        if "resourceNames" in rule:
            rule["resourceNames"] = [names.get(name, name) for name in rule["resourceNames"]]
    if "users" in manifest:
        manifest["users"] = [names.get(user, user) for user in manifest["users"]]


def _rename_sources(daemonset: DaemonSetManifest, names: dict[str, str]) -> None:
    daemonset.pod["serviceAccountName"] = names[_ACCOUNT]
    for volume in daemonset.pod["volumes"]:
        source = volume.get("configMap", {})
        if source.get("name") in (_PROBE, TRUSTED_CA):
            source["name"] = names[source["name"]]


def _set_identity(
    daemonset: DaemonSetManifest,
    driver: ParsedDriver,
    spec: NVIDIADriverSpec,
    driver_spec: DriverSpec,
    variant: Variant,
) -> None:
    """Name, labels and nodes of one variant, and what the spec says of its pods."""
    name = daemonset_name(driver_spec.type, driver.uid, variant)
    daemonset.name = name
    daemonset.manifest["spec"]["selector"]["matchLabels"] = {"app": name}
    daemonset.label(_allowed(spec.labels))
    daemonset.label(
        {
            "app": name,
            PodLabel.DRIVER_OS: variant.system.tag if variant.system else "",
            PodLabel.PRECOMPILED: str(driver_spec.precompiled).lower(),
            PodLabel.STATE: STATE,
            **({_KERNEL: kernel_name(variant.kernel)} if variant.kernel else {}),
        }
    )
    daemonset.annotate(spec.annotations)
    daemonset.select({NodeLabel.DRIVER_OWNER: driver.name, **variant.selector})
    _add_tolerations(daemonset, spec)
    if spec.pod_security_context is not None:
        daemonset.pod["securityContext"] = copy.deepcopy(spec.pod_security_context)


def _allowed(labels: dict[str, str]) -> dict[str, str]:
    """Without labels by which a driver's pods are selected."""
    return {key: value for key, value in labels.items() if key != "app" and not key.startswith(_RESERVED)}


def _add_tolerations(daemonset: DaemonSetManifest, spec: NVIDIADriverSpec) -> None:
    held: Sequence[Manifest] = daemonset.pod["tolerations"]
    added = [dict(toleration) for toleration in spec.tolerations if toleration not in held]
    daemonset.pod["tolerations"] = [*held, *added]


def _as_host_driver(daemonset: DaemonSetManifest) -> None:
    """A vGPU host driver: pods are not evicted for it, since virtual machines use the cards, and it has no start-up
    probe, since nvidia-smi does not say whether it works."""
    daemonset.label({PodLabel.COMPONENT: HOST_MANAGER})
    for term in daemonset.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
        term["labelSelector"]["matchExpressions"][0]["values"] = [HOST_MANAGER]
    daemonset.pod["nodeSelector"].pop(f"{DEPLOY}driver")
    daemonset.select({f"{DEPLOY}vgpu-manager": TRUE})
    daemonset.pod.update(hostIPC=True, terminationGracePeriodSeconds=120)
    daemonset.container(MANAGER).set_env("ENABLE_GPU_POD_EVICTION", "false")
    for name in ("startupProbe", "lifecycle"):
        daemonset.main.manifest.pop(name, None)
    for volume in ("driver-startup-probe", "run-nvidia-fabricmanager", "run-nvidia-topologyd"):
        daemonset.drop_volume(volume)
    for volume, path in (("vfio", "/dev/vfio"), ("cgroup", "/sys/fs/cgroup")):
        daemonset.add_volume(volume, hostPath={"path": path})
        daemonset.main.mount(volume, path)


def _set_priority(daemonset: DaemonSetManifest, spec: NVIDIADriverSpec, policy: ClusterPolicySpec | None) -> None:
    """Without a priority class of its own it has that of the ClusterPolicy's drivers: after `useNvidiaDriverCRD` is
    switched on their pods run on, and a waiting successor with a higher priority would make the scheduler preempt
    them."""
    name = spec.priority_class_name or (policy.daemonsets.priority_class_name if policy is not None else "")
    if name:
        daemonset.pod["priorityClassName"] = name


def _set_host_root(daemonset: DaemonSetManifest, policy: ClusterPolicySpec | None) -> None:
    """The host's root folder, which the ClusterPolicy names."""
    root = policy.host_paths.root_fs.rstrip("/") if policy is not None else ""
    if root:
        daemonset.move_host_path("host-root", root)
        for container in daemonset.containers():
            container.set_env("HOST_ROOT", root)
