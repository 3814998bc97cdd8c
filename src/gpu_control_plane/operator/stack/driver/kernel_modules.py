"""The driver's kernel modules, open or proprietary, and those beside them: RDMA, GPUDirect Storage, GDRCopy. Pure."""

from typing import Final

from gpu_control_plane.api.nvidia.choices import KernelModuleType
from gpu_control_plane.api.nvidia.fields import KernelAddOn
from gpu_control_plane.operator.node_facts import OperatingSystem
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec
from gpu_control_plane.operator.stack.images import image_of, system_image
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.stack.transforms import MANAGER, add_env, add_pull_secrets, set_image

PEERMEM: Final = "nvidia-peermem-ctr"
GDS: Final = "nvidia-fs-ctr"
GDRCOPY: Final = "nvidia-gdrcopy-ctr"

_ON: Final = "true"
_HOST_SOURCES: Final = "/usr/src"


def set_module_type(daemonset: DaemonSetManifest, driver_spec: DriverSpec) -> None:
    """Whether the driver's modules are the open or the proprietary ones."""
    daemonset.main.set_env("KERNEL_MODULE_TYPE", driver_spec.modules.value)
    if driver_spec.modules is KernelModuleType.OPEN:
        daemonset.main.set_env("OPEN_KERNEL_MODULES_ENABLED", _ON)


def add_rdma(daemonset: DaemonSetManifest, driver_spec: DriverSpec) -> None:
    """GPUDirect RDMA: nvidia-peermem, built against the Mellanox driver of a container or of the host."""
    if not driver_spec.rdma:
        daemonset.drop(PEERMEM)
        return
    for container in (daemonset.main, daemonset.container(MANAGER)):
        container.set_env("GPU_DIRECT_RDMA_ENABLED", _ON)
    if driver_spec.host_mofed:
        daemonset.move_host_path("mlnx-ofed-usr-src", _HOST_SOURCES)
        for container in (daemonset.main, daemonset.container(MANAGER), daemonset.container(PEERMEM)):
            container.set_env("USE_HOST_MOFED", _ON)


def add_kernel_add_ons(
    daemonset: DaemonSetManifest, driver_spec: DriverSpec, system: OperatingSystem, platform: Platform
) -> None:
    """GPUDirect Storage and GDRCopy, each in a container beside the driver's."""
    for container, add_on, variable in ((GDS, driver_spec.gds, "GDS"), (GDRCOPY, driver_spec.gdrcopy, "GDRCOPY")):
        if add_on is None:
            daemonset.drop(container)
        else:
            _add(daemonset, container, add_on, variable, driver_spec=driver_spec, system=system, platform=platform)


def _add(
    daemonset: DaemonSetManifest,
    name: str,
    add_on: KernelAddOn,
    variable: str,
    *,
    driver_spec: DriverSpec,
    system: OperatingSystem,
    platform: Platform,
) -> None:
    container = daemonset.container(name)
    fallback = f"{variable}_IMAGE" if driver_spec.image_from_environment else ""
    image = image_of(add_on, fallback=fallback, what=name, environment=platform.images)
    set_image([container], system_image(image, system.tag, what=name), add_on)
    add_pull_secrets(daemonset, *add_on.image_pull_secrets)
    add_env(container, add_on.env)
    daemonset.main.set_env(f"{variable}_ENABLED", _ON)
