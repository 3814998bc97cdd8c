"""Files that people and hosts give to a driver: repositories, certificates, parameters, licences, subscriptions. Pure.

Secrets are not read: only the kubelet may. Where one is missing, the status of the pod says so.
"""

from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.operator.node_facts import ContainerRuntime, OperatingSystem
from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST, config_digest, config_map_data, require_secret
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec
from gpu_control_plane.operator.stack.driver.kernel_modules import GDRCOPY, GDS, PEERMEM
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform, RenderError
from gpu_control_plane.operator.stack.variants import Variant

PARAMETERS_DIGEST: Final = f"{GROUP}/driver-parameters-digest"
"""Annotation over the content of the ConfigMaps that a driver reads when it loads."""

_TOPOLOGY: Final = "nvidia-topologyd.conf"
_LICENCE: Final = "gridd.conf"
_TOKEN: Final = "client_configuration_token.tok"  # noqa: S105 - the name of a file
_SUSE: Final = frozenset({"sles", "sl-micro"})


class Folders(msgspec.Struct, frozen=True):
    """Where a family of operating systems keeps what package managers read."""

    repositories: str
    certificates: str


class Files(msgspec.Struct, frozen=True):
    """A ConfigMap whose keys become files of a folder; without a name there is none."""

    field: str
    """The field of the spec that names it."""
    volume: str
    config_map: str
    folder: str


_DEBIAN: Final = Folders("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates")
_RED_HAT: Final = Folders("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem")
_ZYPP: Final = Folders("/etc/zypp/repos.d", "/etc/pki/trust/anchors")
FOLDERS: Final = {
    **dict.fromkeys(("ubuntu", "debian"), _DEBIAN),
    **dict.fromkeys(("centos", "rhel", "rhcos", "rocky", "ol"), _RED_HAT),
    **dict.fromkeys(_SUSE, _ZYPP),
}

_RED_HAT_SUBSCRIPTION: Final = {
    "subscription-keys": ("/etc/pki/entitlement", "/run/secrets/etc-pki-entitlement"),
    "subscription-repositories": ("/etc/yum.repos.d/redhat.repo", "/run/secrets/redhat.repo"),
    "subscription-settings": ("/etc/rhsm", "/run/secrets/rhsm"),
}
_SUSE_SUBSCRIPTION: Final = {
    "subscription-credentials": ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d"),
    "subscription-settings": ("/etc/SUSEConnect", "/etc/SUSEConnect"),
}


def add_files(
    daemonset: DaemonSetManifest, driver_spec: DriverSpec, system: OperatingSystem, platform: Platform
) -> None:
    """Files from ConfigMaps and Secrets, and annotations that make a new pod whenever one of the ConfigMaps is
    edited."""
    parameters = Files("kernelModuleConfig", "kernel-module-config", driver_spec.parameters, "/drivers")
    _each_key(daemonset, _loaders(daemonset), parameters, platform)
    if not driver_spec.precompiled:
        _add_sources(daemonset, driver_spec, system, platform)
    _add_licence(daemonset, driver_spec, platform)
    if driver_spec.topology:
        config_map_data(platform, driver_spec.topology, _TOPOLOGY, field="virtualTopology")
        daemonset.add_volume("topology-config", configMap={"name": driver_spec.topology, "items": [_item(_TOPOLOGY)]})
        daemonset.main.mount("topology-config", f"/etc/nvidia/{_TOPOLOGY}", sub_path=_TOPOLOGY, read_only=True)
    _add_digests(daemonset, driver_spec, platform)


def add_subscription(
    daemonset: DaemonSetManifest, driver_spec: DriverSpec, variant: Variant, platform: Platform
) -> None:
    """The host's subscription to its distribution, where packages cannot be had without one."""
    system = variant.system
    if system is None or platform.openshift is not None:
        return
    if (
        system.id == "rhel"
        and variant.runtime is not ContainerRuntime.CRIO
        and not driver_spec.repositories
        and not driver_spec.precompiled
    ):
        _from_host(daemonset, _RED_HAT_SUBSCRIPTION)
    elif system.id in _SUSE and driver_spec.precompiled:
        _from_host(daemonset, {"host-modules": ("/lib/modules", "/run/host/lib/modules")})
    elif system.id in _SUSE:
        _from_host(daemonset, _SUSE_SUBSCRIPTION)


def add_secret_env(daemonset: DaemonSetManifest, driver_spec: DriverSpec, platform: Platform) -> None:
    """Variables out of a Secret, for every container that builds or loads modules."""
    require_secret(platform, driver_spec.secret_env, field="secretEnv")
    for container in daemonset.running() if driver_spec.secret_env else ():
        container.manifest.setdefault("envFrom", []).append({"secretRef": {"name": driver_spec.secret_env}})


def _add_sources(
    daemonset: DaemonSetManifest, driver_spec: DriverSpec, system: OperatingSystem, platform: Platform
) -> None:
    """Package repositories and certificates, for every container that builds modules."""
    if not driver_spec.repositories and not driver_spec.certificates:
        return
    folders = FOLDERS.get(system.id)
    if folders is None:
        raise RenderError(
            f"it is not known where {system.id} keeps repositories and certificates:"
            " remove repoConfig and certConfig, or use a precompiled driver"
        )
    for files in (
        Files("repoConfig", "repo-config", driver_spec.repositories, folders.repositories),
        Files("certConfig", "cert-config", driver_spec.certificates, folders.certificates),
    ):
        _each_key(daemonset, _builders(daemonset), files, platform)


def _add_licence(daemonset: DaemonSetManifest, driver_spec: DriverSpec, platform: Platform) -> None:
    licence = driver_spec.licence
    if not licence.secret and not licence.config_map:
        return
    keys = (_LICENCE, _TOKEN) if licence.token else (_LICENCE,)
    items = [_item(key) for key in keys]
    if licence.secret:
        require_secret(platform, licence.secret, field="licensingConfig")
        daemonset.add_volume("licensing-config", secret={"secretName": licence.secret, "items": items})
    else:
        config_map_data(platform, licence.config_map, *keys, field="licensingConfig")
        daemonset.add_volume("licensing-config", configMap={"name": licence.config_map, "items": items})
    main = daemonset.main
    main.mount("licensing-config", f"/drivers/{_LICENCE}", sub_path=_LICENCE, read_only=True)
    if licence.token:
        main.mount("licensing-config", f"/drivers/ClientConfigToken/{_TOKEN}", sub_path=_TOKEN, read_only=True)


def _add_digests(daemonset: DaemonSetManifest, driver_spec: DriverSpec, platform: Platform) -> None:
    """Edits of parameters, topology and licence reload the driver; those of repositories only make a new pod."""
    licence = "" if driver_spec.licence.secret else driver_spec.licence.config_map
    read_at_load = [name for name in (driver_spec.parameters, driver_spec.topology, licence) if name]
    sources = (
        []
        if driver_spec.precompiled
        else [name for name in (driver_spec.repositories, driver_spec.certificates) if name]
    )
    annotations = daemonset.template["metadata"].setdefault("annotations", {})
    if read_at_load:
        annotations[PARAMETERS_DIGEST] = config_digest(platform, *read_at_load)
    if read_at_load or sources:
        annotations[CONFIG_DIGEST] = config_digest(platform, *read_at_load, *sources)


def _each_key(
    daemonset: DaemonSetManifest, containers: list[ContainerManifest], files: Files, platform: Platform
) -> None:
    """Mount each key of a ConfigMap as a file, so that the other files of the folder stay visible."""
    if not files.config_map:
        return
    keys = sorted(config_map_data(platform, files.config_map, field=files.field))
    if not keys:
        return
    daemonset.add_volume(files.volume, configMap={"name": files.config_map, "items": [_item(key) for key in keys]})
    for container in containers:
        for key in keys:
            container.mount(files.volume, f"{files.folder}/{key}", sub_path=key, read_only=True)


def _from_host(daemonset: DaemonSetManifest, paths: dict[str, tuple[str, str]]) -> None:
    for volume, (host, inside) in paths.items():
        daemonset.add_volume(volume, hostPath={"path": host})
        for container in _builders(daemonset):
            container.mount(volume, inside, read_only=True)


def _loaders(daemonset: DaemonSetManifest) -> list[ContainerManifest]:
    """Containers that load modules of the driver's image, with parameters."""
    return [daemonset.main, *(daemonset.container(name) for name in (PEERMEM,) if daemonset.has(name))]


def _builders(daemonset: DaemonSetManifest) -> list[ContainerManifest]:
    return [daemonset.main, *(daemonset.container(name) for name in (GDS, GDRCOPY) if daemonset.has(name))]


def _item(key: str) -> Manifest:
    return {"key": key, "path": key}
