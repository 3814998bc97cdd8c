"""The kernel modules beside the driver's own, and which kind the driver's own are. Pure."""

from typing import Final

from gpu_control_plane.api.nvidia.choices import KernelModuleType
from gpu_control_plane.api.nvidia.fields import KernelAddOn
from gpu_control_plane.operator.node_facts import System
from gpu_control_plane.operator.stack.common_settings import add_env, pull_secrets, run_image
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish
from gpu_control_plane.operator.stack.driver.system_image import system_image
from gpu_control_plane.operator.stack.driver_manager import MANAGER
from gpu_control_plane.operator.stack.images import image_of
from gpu_control_plane.operator.stack.render_input import Platform

PEERMEM: Final = "nvidia-peermem-ctr"
GDS: Final = "nvidia-fs-ctr"
GDRCOPY: Final = "nvidia-gdrcopy-ctr"

_ON: Final = "true"
_HOST_SOURCES: Final = "/usr/src"


def choose_modules(daemonset: DaemonSet, wish: DriverWish) -> None:
    """Whether the driver's modules are the open or the proprietary ones."""
    daemonset.main.set_env("KERNEL_MODULE_TYPE", wish.modules.value)
    if wish.modules is KernelModuleType.OPEN:
        daemonset.main.set_env("OPEN_KERNEL_MODULES_ENABLED", _ON)


def add_rdma(daemonset: DaemonSet, wish: DriverWish) -> None:
    """GPUDirect RDMA: nvidia-peermem, built against the Mellanox driver of a container or of the host."""
    if not wish.rdma:
        daemonset.drop(PEERMEM)
        return
    for container in (daemonset.main, daemonset.container(MANAGER)):
        container.set_env("GPU_DIRECT_RDMA_ENABLED", _ON)
    if wish.host_mofed:
        daemonset.move_host_path("mlnx-ofed-usr-src", _HOST_SOURCES)
        for container in (daemonset.main, daemonset.container(MANAGER), daemonset.container(PEERMEM)):
            container.set_env("USE_HOST_MOFED", _ON)


def add_modules(daemonset: DaemonSet, wish: DriverWish, system: System, platform: Platform) -> None:
    """GPUDirect Storage and GDRCopy, each in a container beside the driver's."""
    for container, add_on, variable in ((GDS, wish.gds, "GDS"), (GDRCOPY, wish.gdrcopy, "GDRCOPY")):
        if add_on is None:
            daemonset.drop(container)
        else:
            _add(daemonset, container, add_on, variable, wish=wish, system=system, platform=platform)


def _add(
    daemonset: DaemonSet,
    name: str,
    add_on: KernelAddOn,
    variable: str,
    *,
    wish: DriverWish,
    system: System,
    platform: Platform,
) -> None:
    container = daemonset.container(name)
    fallback = f"{variable}_IMAGE" if wish.by_variable else ""
    image = image_of(add_on, fallback=fallback, what=name, environment=platform.images)
    run_image([container], system_image(image, system.tag, what=name), add_on)
    pull_secrets(daemonset, *add_on.image_pull_secrets)
    add_env(container, add_on.env)
    daemonset.main.set_env(f"{variable}_ENABLED", _ON)
