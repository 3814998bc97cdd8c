"""Turns the driver's asset into the pod that a driver spec asks for, for one variant. Pure, and in place."""

from gpu_control_plane.api.nvidia.fields import Probe
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.node_facts import OperatingSystem
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec, check
from gpu_control_plane.operator.stack.driver.kernel_modules import (
    PEERMEM,
    add_kernel_add_ons,
    add_rdma,
    set_module_type,
)
from gpu_control_plane.operator.stack.driver.mounts import add_files, add_secret_env, add_subscription
from gpu_control_plane.operator.stack.driver.openshift import add_openshift
from gpu_control_plane.operator.stack.images import image_of, precompiled_image, system_image
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform, RenderError
from gpu_control_plane.operator.stack.transforms import (
    add_pull_secrets,
    configure_driver_manager,
    set_image,
    set_resources,
)
from gpu_control_plane.operator.stack.variants import Variant, select_own_pods


def apply_driver_spec(
    daemonset: DaemonSetManifest, driver_spec: DriverSpec, variant: Variant, platform: Platform
) -> None:
    """Everything except the environment that people wrote and the digest, which come last."""
    check(driver_spec)
    system = variant.system
    if system is None:
        raise RenderError("a driver cannot be chosen for nodes that do not say which operating system they have")
    _containers(daemonset, driver_spec, variant, system, platform)
    set_module_type(daemonset, driver_spec)
    add_rdma(daemonset, driver_spec)
    add_kernel_add_ons(daemonset, driver_spec, system, platform)
    add_probes(daemonset, driver_spec)
    add_files(daemonset, driver_spec, system, platform)
    add_subscription(daemonset, driver_spec, variant, platform)
    add_openshift(daemonset, variant, platform)
    add_secret_env(daemonset, driver_spec, platform)
    set_resources(daemonset.running(), driver_spec.resources)
    select_own_pods(daemonset, variant)
    if driver_spec.precompiled:
        daemonset.label({PodLabel.PRECOMPILED: "true"})


def driver_image(driver_spec: DriverSpec, variant: Variant, system: OperatingSystem, platform: Platform) -> str:
    """The driver's image for one variant."""
    fallback = "DRIVER_IMAGE" if driver_spec.image_from_environment else ""
    image = image_of(driver_spec.image, fallback=fallback, what="the driver", environment=platform.images)
    if driver_spec.precompiled:
        return precompiled_image(image, variant.kernel, system.tag, what="the driver")
    return system_image(image, system.tag, what="the driver")


def add_probes(daemonset: DaemonSetManifest, driver_spec: DriverSpec) -> None:
    """When a driver counts as loaded, ready and alive. Times that the spec does not give are those of the asset.

    The liveness and readiness probes run the start-up probe's command and may take as long to answer. Kubernetes allows
    a `successThreshold` above 1 for readiness only, so it is not passed on for the others.
    """
    main = daemonset.main.manifest
    startup = main["startupProbe"]
    startup.update(_timing(driver_spec.startup, success_threshold=False))
    command = {"exec": startup["exec"], "timeoutSeconds": startup["timeoutSeconds"]}
    if driver_spec.liveness is not None:
        main["livenessProbe"] = {**command, **_timing(driver_spec.liveness, success_threshold=False)}
    if driver_spec.readiness is not None:
        main["readinessProbe"] = {**command, **_timing(driver_spec.readiness, success_threshold=True)}


def _containers(
    daemonset: DaemonSetManifest,
    driver_spec: DriverSpec,
    variant: Variant,
    system: OperatingSystem,
    platform: Platform,
) -> None:
    """Images, Secrets to pull them with, arguments, network."""
    main = daemonset.main
    drivers: list[ContainerManifest] = [main, daemonset.container(PEERMEM)]
    set_image(drivers, driver_image(driver_spec, variant, system, platform), driver_spec.image)
    add_pull_secrets(daemonset, *driver_spec.image.image_pull_secrets)
    configure_driver_manager(daemonset, driver_spec.manager, platform)
    if driver_spec.args:
        main.manifest["args"] = list(driver_spec.args)
    if driver_spec.host_network:
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def _timing(probe: Probe | None, *, success_threshold: bool) -> Manifest:
    if probe is None:
        return {}
    wanted = {
        "initialDelaySeconds": probe.initial_delay_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "periodSeconds": probe.period_seconds,
        "successThreshold": probe.success_threshold if success_threshold else None,
        "failureThreshold": probe.failure_threshold,
    }
    return {name: value for name, value in wanted.items() if value is not None}
