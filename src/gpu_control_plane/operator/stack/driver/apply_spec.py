"""From the plain driver pod to the one that somebody wants at one place. Pure, and in place."""

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.node_facts import System
from gpu_control_plane.operator.stack.common_settings import limit, pull_secrets, run_image
from gpu_control_plane.operator.stack.daemonset_manifest import Container, DaemonSet
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish, check
from gpu_control_plane.operator.stack.driver.kernel_modules import PEERMEM, add_modules, add_rdma, choose_modules
from gpu_control_plane.operator.stack.driver.mounts import add_files, add_secret_env, add_subscription
from gpu_control_plane.operator.stack.driver.openshift import add_openshift
from gpu_control_plane.operator.stack.driver.probes import add_probes
from gpu_control_plane.operator.stack.driver.system_image import system_image, versioned
from gpu_control_plane.operator.stack.driver_manager import driver_manager
from gpu_control_plane.operator.stack.images import image_of, precompiled
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform
from gpu_control_plane.operator.stack.variants import Variant, find_its_own


def fit(daemonset: DaemonSet, wish: DriverWish, place: Variant, platform: Platform) -> None:
    """Everything but the environment that people wrote and the digest, which come last."""
    check(wish)
    system = place.system
    if system is None:
        raise CannotRender("a driver cannot be chosen for nodes that do not say which operating system they have")
    _run(daemonset, wish, place, system, platform)
    choose_modules(daemonset, wish)
    add_rdma(daemonset, wish)
    add_modules(daemonset, wish, system, platform)
    add_probes(daemonset, wish)
    add_files(daemonset, wish, system, platform)
    add_subscription(daemonset, wish, place, platform)
    add_secret_env(daemonset, wish, platform)
    add_openshift(daemonset, place, platform)
    find_its_own(daemonset, place)
    if wish.precompiled:
        daemonset.label({PodLabel.PRECOMPILED: "true"})


def _run(daemonset: DaemonSet, wish: DriverWish, place: Variant, system: System, platform: Platform) -> None:
    """Images, Secrets to pull them with, resources, arguments, network."""
    main = daemonset.main
    drivers: list[Container] = [main, daemonset.container(PEERMEM)]
    run_image(drivers, driver_image(wish, place, system, platform), wish.image)
    limit(drivers, wish.resources)
    pull_secrets(daemonset, *wish.image.image_pull_secrets)
    driver_manager(daemonset, wish.manager, platform)
    if wish.args:
        main.manifest["args"] = list(wish.args)
    if wish.host_network:
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def driver_image(wish: DriverWish, place: Variant, system: System, platform: Platform) -> str:
    """The driver's image for one place."""
    fallback = "DRIVER_IMAGE" if wish.by_variable else ""
    image = image_of(wish.image, fallback=fallback, what="the driver", environment=platform.images)
    if wish.precompiled:
        return precompiled(versioned(image, what="the driver"), place.kernel, system.tag)
    return system_image(image, system.tag, what="the driver")
