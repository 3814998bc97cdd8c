"""What happens to every DaemonSet of the stack, whatever operand it is. Pure.

Transforms of an operand come first and what people wrote for the operand last, so that they have the last word.
"""

from typing import Final

from gpu_control_plane.api.nvidia.choices import UpdateStrategy
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import EnvVar, ImageParts, Operand, Resources
from gpu_control_plane.operator.node_facts import Runtime
from gpu_control_plane.operator.stack.daemonset_manifest import Container, DaemonSet
from gpu_control_plane.operator.stack.images import image_of, pull_policy
from gpu_control_plane.operator.stack.manifest import on_delete
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.variants import Variant
from gpu_control_plane.operator.views import ON_DELETE

VALIDATOR_IMAGE: Final = "VALIDATOR_IMAGE"
RUNTIME_CLASS: Final = "nvidia"
"""Name of the runtime class where the policy has none."""

_DRIVER_ROOT: Final = "/run/nvidia/driver"
_DRIVER: Final = "nvidia-driver-daemonset"
_PROTECTED: Final = ("app", "app.kubernetes.io/part-of")
_MANAGED_CARDS: Final = "management.nvidia.com/gpu=all"


def run_image(containers: list[Container], image: str, parts: ImageParts) -> None:
    """Let containers run an image, pulled as its section says."""
    for container in containers:
        container.manifest["image"] = image
        container.manifest["imagePullPolicy"] = pull_policy(parts.image_pull_policy)


def pull_secrets(daemonset: DaemonSet, *names: str) -> None:
    """Add Secrets with which the pod's images are pulled."""
    held = daemonset.pod.get("imagePullSecrets", [])
    known = {entry["name"] for entry in held}
    added = [{"name": name} for name in dict.fromkeys(names) if name not in known]
    if held or added:
        daemonset.pod["imagePullSecrets"] = [*held, *added]


def limit(containers: list[Container], resources: Resources | None) -> None:
    """Give containers the resources that a section names."""
    if resources is None:
        return
    parts = {"limits": resources.limits, "requests": resources.requests}
    wanted = {name: dict(values) for name, values in parts.items() if values}
    for container in containers:
        container.manifest["resources"] = wanted


def add_env(container: Container, env: tuple[EnvVar, ...]) -> None:
    for variable in env:
        container.set_env(variable.name, variable.value)


def operand(daemonset: DaemonSet, section: Operand, stage: Stage, *, image: str, names: tuple[str, ...] = ()) -> None:
    """What the section of an operand says of its pod, all but the environment.

    `image` is the variable that names the image when the section does not; `names` are the containers that run it, by
    default the main one.
    """
    environment = stage.platform.images
    containers = [daemonset.container(name) for name in names if daemonset.has(name)] or [daemonset.main]
    named = image_of(section, fallback=image, what=daemonset.name, environment=environment)
    run_image(containers, named, section)
    pull_secrets(daemonset, *section.image_pull_secrets)
    limit(containers, section.resources)
    if section.args:
        daemonset.main.manifest["args"] = list(section.args)
    if section.host_network:
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def runtime_class_of(stage: Stage, variant: Variant) -> str:
    """The runtime class of the pods that need cards; none where NRI gives them, or a hook of CRI-O."""
    cdi = stage.policy.cdi
    if cdi.nri_plugin_enabled or (not cdi.enabled and variant.runtime is Runtime.CRIO):
        return ""
    return stage.policy.operator.runtime_class or RUNTIME_CLASS


def give_cards(daemonset: DaemonSet, *names: str) -> None:
    """Let NRI give containers all cards of the node."""
    annotations = {f"nvidia.cdi.k8s.io/container.{name}": _MANAGED_CARDS for name in names}
    daemonset.template["metadata"].setdefault("annotations", {}).update(annotations)


def finish(
    daemonset: DaemonSet, stage: Stage, variant: Variant, *, env: tuple[EnvVar, ...], runtime_class: bool
) -> None:
    """The last touches, the same for all: validation containers, runtime class, host paths, common settings, env."""
    _validate(daemonset, stage)
    if runtime_class:
        _see_cards(daemonset, stage, variant)
    _host_paths(daemonset, stage.policy)
    _common(daemonset, stage.policy)
    add_env(daemonset.main, env)


def _validate(daemonset: DaemonSet, stage: Stage) -> None:
    """Containers that wait for, or carry out, a validation run the validator's image."""
    policy, environment = stage.policy, stage.platform.images
    containers = [held for held in daemonset.containers() if held.name.endswith("-validation")]
    if not containers:
        return
    validator = policy.validator
    image = image_of(validator, fallback=VALIDATOR_IMAGE, what="the validator", environment=environment)
    run_image(containers, image, validator)
    limit(containers, validator.resources)
    pull_secrets(daemonset, *validator.image_pull_secrets)
    steps = {"driver-validation": validator.driver, "toolkit-validation": validator.toolkit}
    for container in containers:
        container.manifest.setdefault("securityContext", {})["runAsUser"] = 0
        step = steps.get(container.name)
        if step is not None:
            add_env(container, step.env)


def _see_cards(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    """How an operand that computes on cards, or watches them, is given all of them."""
    if stage.policy.cdi.nri_plugin_enabled:
        give_cards(daemonset, *(held["name"] for held in daemonset.pod["containers"]))
    elif name := runtime_class_of(stage, variant):
        daemonset.pod["runtimeClassName"] = name


def _host_paths(daemonset: DaemonSet, policy: ClusterPolicySpec) -> None:
    paths = policy.host_paths
    root = paths.root_fs.rstrip("/")
    if root:
        daemonset.move_host_path("host-root", root)
        daemonset.move_host_path("host-dev-char", f"{root}/dev/char")
        for container in daemonset.containers():
            if container.env("HOST_ROOT") in {None, "/"}:  # else it means where the container itself sees the host
                container.set_env("HOST_ROOT", root)
    driver = paths.driver_install_dir.rstrip("/")
    if driver and driver != _DRIVER_ROOT:
        daemonset.move_host_path("driver-install-dir", driver)
        for container in daemonset.containers():
            if container.name == "driver-validation":
                container.move_mount("driver-install-dir", driver)
                container.set_env("DRIVER_INSTALL_DIR", driver)
                container.set_env("DRIVER_INSTALL_DIR_CTR_PATH", driver)


def _common(daemonset: DaemonSet, policy: ClusterPolicySpec) -> None:
    """The section `daemonsets`: what all operands have in common."""
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
    daemonset.label(wanted.labels, protected={*_PROTECTED, *spec["selector"]["matchLabels"]})
    daemonset.annotate(wanted.annotations)
