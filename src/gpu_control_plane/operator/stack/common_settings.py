"""What every DaemonSet of the stack gets, whatever operand it is. Pure.

The operand's own transform comes before this, and the environment that people wrote for the operand comes last: they
override everything else.
"""

from typing import Final

from gpu_control_plane.api.nvidia.choices import UpdateStrategy
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import EnvVar
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.images import image_of
from gpu_control_plane.operator.stack.manifest import on_delete
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.transforms import (
    add_env,
    add_nri_devices,
    add_pull_secrets,
    runtime_class_for,
    set_image,
    set_resources,
)
from gpu_control_plane.operator.stack.variants import Variant
from gpu_control_plane.operator.views import ON_DELETE

VALIDATOR_IMAGE: Final = "VALIDATOR_IMAGE"

_DRIVER_ROOT: Final = "/run/nvidia/driver"
_DRIVER: Final = "nvidia-driver-daemonset"
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_PROTECTED_LABELS: Final = ("app", "app.kubernetes.io/part-of")


def apply_common_settings(
    daemonset: DaemonSetManifest,
    render_input: RenderInput,
    variant: Variant,
    *,
    env: tuple[EnvVar, ...],
    runtime_class: bool,
) -> None:
    """Validation containers, runtime class, host paths, the section `daemonsets`, and the operand's own environment."""
    _validation_containers(daemonset, render_input)
    if runtime_class:
        _give_cards(daemonset, render_input, variant)
    _host_paths(daemonset, render_input.policy)
    _daemonsets_section(daemonset, render_input.policy)
    _name_default_container(daemonset)
    add_env(daemonset.main, env)


def _validation_containers(daemonset: DaemonSetManifest, render_input: RenderInput) -> None:
    """Containers that carry out a validation, or wait for one, run the validator's image."""
    policy, environment = render_input.policy, render_input.platform.images
    containers = [held for held in daemonset.containers() if held.name.endswith("-validation")]
    if not containers:
        return
    validator = policy.validator
    image = image_of(validator, fallback=VALIDATOR_IMAGE, what="the validator", environment=environment)
    set_image(containers, image, validator)
    set_resources(containers, validator.resources)
    add_pull_secrets(daemonset, *validator.image_pull_secrets)
    steps = {"driver-validation": validator.driver, "toolkit-validation": validator.toolkit}
    for container in containers:
        container.manifest.setdefault("securityContext", {})["runAsUser"] = 0
        step = steps.get(container.name)
        if step is not None:
            add_env(container, step.env)


def _give_cards(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    """Give all cards of the node to an operand that computes on them or monitors them: by NRI or by a runtime class."""
    if render_input.policy.cdi.nri_plugin_enabled:
        add_nri_devices(daemonset, *(held["name"] for held in daemonset.pod["containers"]))
    elif name := runtime_class_for(render_input, variant):
        daemonset.pod["runtimeClassName"] = name


def _host_paths(daemonset: DaemonSetManifest, policy: ClusterPolicySpec) -> None:
    paths = policy.host_paths
    root = paths.root_fs.rstrip("/")
    if root:
        daemonset.move_host_path("host-root", root)
        daemonset.move_host_path("host-dev-char", f"{root}/dev/char")
        for container in daemonset.containers():
            if container.env("HOST_ROOT") in {None, "/"}:  # else it is the path under which the container sees the host
                container.set_env("HOST_ROOT", root)
    driver = paths.driver_install_dir.rstrip("/")
    if driver and driver != _DRIVER_ROOT:
        daemonset.move_host_path("driver-install-dir", driver)
        for container in daemonset.containers():
            if container.name == "driver-validation":
                container.move_mount("driver-install-dir", driver)
                container.set_env("DRIVER_INSTALL_DIR", driver)
                container.set_env("DRIVER_INSTALL_DIR_CTR_PATH", driver)


def _name_default_container(daemonset: DaemonSetManifest) -> None:
    """Let `kubectl logs` and `kubectl exec` show the operand and not what stands beside it."""
    if len(daemonset.running()) > 1:
        daemonset.template["metadata"].setdefault("annotations", {}).setdefault(_DEFAULT_CONTAINER, daemonset.main.name)


def _daemonsets_section(daemonset: DaemonSetManifest, policy: ClusterPolicySpec) -> None:
    """The section `daemonsets`: settings that all operands share."""
    wanted, spec = policy.daemonsets, daemonset.manifest["spec"]
    driver = daemonset.name.startswith(_DRIVER) or on_delete(spec)
    if wanted.update_strategy is UpdateStrategy.ON_DELETE:
        spec["updateStrategy"] = {"type": ON_DELETE}
    elif wanted.rolling_update is not None and wanted.rolling_update.max_unavailable and not driver:
        most = wanted.rolling_update.max_unavailable
        spec["updateStrategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": int(most) if most.isdigit() else most},
        }
    if wanted.priority_class_name:
        daemonset.pod["priorityClassName"] = wanted.priority_class_name
    if wanted.tolerations:
        daemonset.pod["tolerations"] = [dict(toleration) for toleration in wanted.tolerations]
    if wanted.pod_security_context is not None:
        daemonset.pod["securityContext"] = dict(wanted.pod_security_context)
    daemonset.label(wanted.labels, protected={*_PROTECTED_LABELS, *spec["selector"]["matchLabels"]})
    daemonset.annotate(wanted.annotations)
