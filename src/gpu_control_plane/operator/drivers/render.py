"""From an NVIDIADriver and its nodes to its objects. Pure; `CannotRender` says what to change.

The pod is the one of a ClusterPolicy's driver; what differs is whose it is, where it goes and what it is called.
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
from gpu_control_plane.operator.drivers.owner import Driver
from gpu_control_plane.operator.drivers.variants import kinds_of, pools
from gpu_control_plane.operator.stack.common_settings import add_env
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.apply_spec import fit
from gpu_control_plane.operator.stack.driver.digest import seal
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish, check, from_driver
from gpu_control_plane.operator.stack.driver.openshift import TRUSTED_CA, trusted_ca
from gpu_control_plane.operator.stack.driver.variants import kernel_word
from gpu_control_plane.operator.stack.driver_manager import MANAGER
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.render import mark
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform
from gpu_control_plane.operator.stack.variants import Variant

STATE: Final = "state-driver"
HOST_MANAGER: Final = "nvidia-vgpu-host-manager"
"""Component of a host driver; drivers in containers are `nvidia-driver`."""

_ACCOUNT: Final = "nvidia-driver"
_PROBE: Final = "nvidia-driver-startup-probe"
_KERNEL: Final = "nvidia.com/precompiled.kernel-version"
_OPEN_ONLY: Final = (2, 17, 5)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_RESERVED: Final = "app.kubernetes.io/"


def render_driver(
    driver: Driver, nodes: Iterable[Node], platform: Platform, policy: ClusterPolicySpec | None
) -> list[Manifest]:
    """The objects of an NVIDIADriver on its nodes; none where it has no nodes."""
    if driver.spec is None:
        raise CannotRender(driver.problem)
    wish = from_driver(driver.spec)
    check(wish)
    _check_storage(wish)
    places = pools(kinds_of(nodes), wish, platform, policy)
    made: dict[tuple[str, str], Manifest] = {}
    for place in places:
        for manifest in _objects(driver, driver.spec, wish, place, platform=platform, policy=policy):
            made[manifest["kind"], manifest["metadata"]["name"]] = manifest
    for manifest in made.values():
        mark(manifest, STATE, platform.namespace, controlled_by(NVIDIADriver.resource, driver.name, driver.uid))
    return list(made.values())


def _check_storage(wish: DriverWish) -> None:
    """GPUDirect Storage works with open modules only, since 2.17.5; of a digest or a word nobody knows the version."""
    if wish.gds is None or wish.modules is KernelModuleType.OPEN:
        return
    found = _VERSION.match(wish.gds.version)
    if found is None or tuple(int(part) for part in found.groups()) >= _OPEN_ONLY:
        raise CannotRender(
            f"gds {wish.gds.version or wish.gds.image} needs the open kernel modules: set kernelModuleType to open,"
            " or use a gds older than v2.17.5"
        )


def _objects(
    driver: Driver,
    spec: NVIDIADriverSpec,
    wish: DriverWish,
    place: Variant,
    *,
    platform: Platform,
    policy: ClusterPolicySpec | None,
) -> list[Manifest]:
    account = object_name(wish.type, driver.name, place)
    names = {_ACCOUNT: account, _PROBE: probe_name(driver.name), TRUSTED_CA: trusted_ca_name(driver.name)}
    found = trusted_ca(assets(STATE, openshift=platform.openshift is not None), platform.openshift)
    for manifest in found:
        _rename(manifest, names)
        if manifest["kind"] == "DaemonSet":
            daemonset = DaemonSet(manifest)
            fit(daemonset, wish, place, platform)
            _rename_sources(daemonset, names)
            _make_ours(daemonset, driver, spec, wish, place)
            if wish.type is DriverType.VGPU_HOST_MANAGER:
                _for_host(daemonset)
            _root(daemonset, policy)
            _rank(daemonset, spec, policy)
            add_env(daemonset.main, wish.env)
            seal(daemonset)
            note_template(manifest, spec.manager)
    if wish.type is DriverType.VGPU_HOST_MANAGER:
        found = [manifest for manifest in found if manifest["metadata"]["name"] != names[_PROBE]]
    return found


def _rename(manifest: Manifest, names: dict[str, str]) -> None:
    """Give an object, and whatever it refers to, the names of this NVIDIADriver."""
    for holder in (manifest["metadata"], manifest.get("roleRef", {}), *manifest.get("subjects", ())):
        if holder.get("name") in names:
            holder["name"] = names[holder["name"]]
    for rule in manifest.get("rules") or ():
        if "resourceNames" in rule:
            rule["resourceNames"] = [names.get(name, name) for name in rule["resourceNames"]]
    if "users" in manifest:
        manifest["users"] = [names.get(user, user) for user in manifest["users"]]


def _rename_sources(daemonset: DaemonSet, names: dict[str, str]) -> None:
    daemonset.pod["serviceAccountName"] = names[_ACCOUNT]
    for volume in daemonset.pod["volumes"]:
        source = volume.get("configMap", {})
        if source.get("name") in (_PROBE, TRUSTED_CA):
            source["name"] = names[source["name"]]


def _make_ours(daemonset: DaemonSet, driver: Driver, spec: NVIDIADriverSpec, wish: DriverWish, place: Variant) -> None:
    """Name, labels and nodes of one pool, and what the spec says of its pods."""
    name = daemonset_name(wish.type, driver.uid, place)
    daemonset.name = name
    daemonset.manifest["spec"]["selector"]["matchLabels"] = {"app": name}
    daemonset.label(_allowed(spec.labels))
    daemonset.label(
        {
            "app": name,
            PodLabel.DRIVER_OS: place.system.tag if place.system else "",
            PodLabel.PRECOMPILED: str(wish.precompiled).lower(),
            PodLabel.STATE: STATE,
            **({_KERNEL: kernel_word(place.kernel)} if place.kernel else {}),
        }
    )
    daemonset.annotate(spec.annotations)
    daemonset.select({NodeLabel.DRIVER_OWNER: driver.name, **place.selector})
    _add_tolerations(daemonset, spec)
    if spec.pod_security_context is not None:
        daemonset.pod["securityContext"] = copy.deepcopy(spec.pod_security_context)


def _allowed(labels: dict[str, str]) -> dict[str, str]:
    """Without those by which a driver's pods are found."""
    return {key: value for key, value in labels.items() if key != "app" and not key.startswith(_RESERVED)}


def _add_tolerations(daemonset: DaemonSet, spec: NVIDIADriverSpec) -> None:
    held: Sequence[Manifest] = daemonset.pod["tolerations"]
    added = [dict(toleration) for toleration in spec.tolerations if toleration not in held]
    daemonset.pod["tolerations"] = [*held, *added]


def _for_host(daemonset: DaemonSet) -> None:
    """The host side of vGPU: beside virtual machines nothing is evicted, and nvidia-smi is no sign of success."""
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


def _rank(daemonset: DaemonSet, spec: NVIDIADriverSpec, policy: ClusterPolicySpec | None) -> None:
    """Unless it says otherwise, it ranks with the drivers of the ClusterPolicy: after a hand-over their pods run on,
    and a successor that ranks higher and waits for its turn would be let in their place by the scheduler."""
    name = spec.priority_class_name or (policy.daemonsets.priority_class_name if policy is not None else "")
    if name:
        daemonset.pod["priorityClassName"] = name


def _root(daemonset: DaemonSet, policy: ClusterPolicySpec | None) -> None:
    """The ClusterPolicy knows where the host's root lies."""
    root = policy.host_paths.root_fs.rstrip("/") if policy is not None else ""
    if root:
        daemonset.move_host_path("host-root", root)
        for container in daemonset.containers():
            container.set_env("HOST_ROOT", root)
