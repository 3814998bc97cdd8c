"""What a driver needs on OpenShift: proxy, trusted certificates, and the Driver Toolkit in which it is built. Pure."""

from typing import Final

from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.kernel_modules import GDRCOPY, GDS
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.stack.variants import Variant

TOOLKIT: Final = "openshift-driver-toolkit-ctr"
TRUSTED_CA: Final = "gpu-operator-trusted-ca"
PROXY_VARIABLES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})

_SHARED: Final = "shared-nvidia-driver-toolkit"
_SHARED_PATH: Final = "/mnt/shared-nvidia-driver-toolkit"
_BUNDLE: Final = "tls-ca-bundle.pem"
_ENTRYPOINT: Final = "ocp_dtk_entrypoint"
_STEPS: Final = {GDS: "nv-fs-ctr-run-with-dtk", GDRCOPY: "gdrcopy-ctr-run-with-dtk"}
_LABEL: Final = "openshift.driver-toolkit"


def add_openshift(daemonset: DaemonSetManifest, variant: Variant, platform: Platform) -> None:
    """Add what a driver needs on OpenShift, or remove what only OpenShift needs."""
    if platform.openshift is not None:
        _add_cluster_settings(daemonset, platform.openshift)
    if platform.openshift is not None and variant.ostree:
        _build_in_toolkit(daemonset, variant.ostree, platform.openshift)
    else:
        daemonset.drop(TOOLKIT)
        daemonset.drop_volume(_SHARED)


def trusted_ca(manifests: list[Manifest], openshift: OpenShift | None) -> list[Manifest]:
    """Leave out the ConfigMap for the proxy's certificates where the proxy has none."""
    wanted = openshift is not None and openshift.proxy_ca
    return [held for held in manifests if wanted or held["metadata"]["name"] != TRUSTED_CA]


def _add_cluster_settings(daemonset: DaemonSetManifest, openshift: OpenShift) -> None:
    if openshift.version:
        daemonset.main.set_env("OPENSHIFT_VERSION", openshift.version)
    containers = daemonset.running()
    for container in containers:
        for name, value in sorted(openshift.proxy.items()):
            container.set_env(name.upper(), value)
            container.set_env(name.lower(), value)
    if openshift.proxy_ca:
        items = [{"key": "ca-bundle.crt", "path": _BUNDLE}]
        daemonset.add_volume(TRUSTED_CA, configMap={"name": TRUSTED_CA, "items": items})
        for container in containers:
            path = f"/etc/pki/ca-trust/extracted/pem/{_BUNDLE}"
            container.mount(TRUSTED_CA, path, sub_path=_BUNDLE, read_only=True)


def _build_in_toolkit(daemonset: DaemonSetManifest, release: str, openshift: OpenShift) -> None:
    """Let the toolkit's container build what the others load. Without an image for the release the driver's image is
    used, which then looks for the toolkit itself."""
    main, toolkit = daemonset.main, daemonset.container(TOOLKIT)
    labels = {_LABEL: "true"}
    toolkit.set_env("RHCOS_VERSION", release)
    image = openshift.toolkit_images.get(release, "")
    toolkit.manifest["image"] = image or main.manifest["image"]
    if not image:
        labels[f"{_LABEL}.rhcos-image-missing"] = "true"
        main.set_env("RHCOS_VERSION", release)
        for container in (main, toolkit):
            container.set_env("RHCOS_IMAGE_MISSING", "true")
    daemonset.label(labels)
    daemonset.manifest["metadata"]["labels"][f"{_LABEL}.rhcos"] = release
    main.manifest["command"], main.manifest["args"] = [_ENTRYPOINT], ["nv-ctr-run-with-dtk"]
    main.mount(_SHARED, _SHARED_PATH)
    for name, step in _STEPS.items():
        if daemonset.has(name):
            container = daemonset.container(name)
            container.manifest["command"], container.manifest["args"] = [_ENTRYPOINT], [step]
            container.mount(_SHARED, _SHARED_PATH)
            toolkit.set_env("GDS_ENABLED" if name == GDS else "GDRCOPY_ENABLED", "true")
