"""k8s-driver-manager: the container that clears a node before another driver takes its cards. Pure."""

from typing import Final

from gpu_control_plane.api.nvidia.fields import DriverManager, Resources
from gpu_control_plane.operator.stack.common_settings import add_env, limit, pull_secrets, run_image
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.images import image_of
from gpu_control_plane.operator.stack.render_input import Platform

MANAGER: Final = "k8s-driver-manager"
DRIVER_MANAGER_IMAGE: Final = "DRIVER_MANAGER_IMAGE"


def driver_manager(
    daemonset: DaemonSet, section: DriverManager, platform: Platform, *, resources: Resources | None = None
) -> None:
    """What the section of a driver says of its manager; `resources` are those of the driver."""
    container = daemonset.container(MANAGER)
    what = f"{MANAGER} of {daemonset.name}"
    image = image_of(section, fallback=DRIVER_MANAGER_IMAGE, what=what, environment=platform.images)
    run_image([container], image, section)
    pull_secrets(daemonset, *section.image_pull_secrets)
    limit([container], resources)
    add_env(container, section.env)
