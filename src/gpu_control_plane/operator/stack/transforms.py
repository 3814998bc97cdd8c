"""What a ClusterPolicy changes in the pods of several operands: images, resources, CDI, MIG, MPS, virtual machines.
Pure.

An operand's own transform calls what it needs of these; what every DaemonSet gets is in `common_settings`.
"""

from typing import Final

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.choices import MIGStrategy, SandboxMode
from gpu_control_plane.api.nvidia.fields import (
    DriverManager,
    EnvVar,
    ImageParts,
    Operand,
    Resources,
    ServiceMonitor,
    on,
)
from gpu_control_plane.operator.node_facts import ContainerRuntime
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.images import image_of, pull_policy
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.stack.variants import Variant

RUNTIME_CLASS: Final = "nvidia"
"""Name of the runtime class where the policy names none."""
MANAGER: Final = "k8s-driver-manager"
"""The container that empties a node of pods with cards before another driver takes the cards."""
DRIVER_MANAGER_IMAGE: Final = "DRIVER_MANAGER_IMAGE"

_ALL_CARDS: Final = "management.nvidia.com/gpu=all"


def set_image(containers: list[ContainerManifest], image: str, parts: ImageParts) -> None:
    """Let containers run an image, pulled as its section says."""
    for container in containers:
        container.manifest["image"] = image
        container.manifest["imagePullPolicy"] = pull_policy(parts.image_pull_policy)


def add_pull_secrets(daemonset: DaemonSetManifest, *names: str) -> None:
    """Add Secrets with which the pod's images are pulled."""
    held = daemonset.pod.get("imagePullSecrets", [])
    known = {entry["name"] for entry in held}
    added = [{"name": name} for name in dict.fromkeys(names) if name not in known]
    if held or added:
        daemonset.pod["imagePullSecrets"] = [*held, *added]


def set_resources(containers: list[ContainerManifest], resources: Resources | None) -> None:
    """Give containers the requests and limits that a section names."""
    if resources is None:
        return
    parts = {"limits": resources.limits, "requests": resources.requests}
    wanted = {name: dict(values) for name, values in parts.items() if values}
    for container in containers:
        container.manifest["resources"] = wanted


def add_env(container: ContainerManifest, env: tuple[EnvVar, ...]) -> None:
    for variable in env:
        container.set_env(variable.name, variable.value)


def apply_operand_section(
    daemonset: DaemonSetManifest,
    section: Operand,
    render_input: RenderInput,
    *,
    image: str,
    names: tuple[str, ...] = (),
) -> None:
    """What the section of an operand says of its pod, except the environment.

    `image` is the variable that names the image when the section does not; `names` are the containers that run it, by
    default the main one.
    """
    environment = render_input.platform.images
    containers = [daemonset.container(name) for name in names if daemonset.has(name)] or [daemonset.main]
    named = image_of(section, fallback=image, what=daemonset.name, environment=environment)
    set_image(containers, named, section)
    add_pull_secrets(daemonset, *section.image_pull_secrets)
    set_resources(containers, section.resources)
    if section.args:
        daemonset.main.manifest["args"] = list(section.args)
    if section.host_network:
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def configure_driver_manager(
    daemonset: DaemonSetManifest, section: DriverManager, platform: Platform, *, resources: Resources | None = None
) -> None:
    """What the section of a driver says of its k8s-driver-manager; `resources` are those of the driver."""
    container = daemonset.container(MANAGER)
    what = f"{MANAGER} of {daemonset.name}"
    image = image_of(section, fallback=DRIVER_MANAGER_IMAGE, what=what, environment=platform.images)
    set_image([container], image, section)
    add_pull_secrets(daemonset, *section.image_pull_secrets)
    set_resources([container], resources)
    add_env(container, section.env)


def runtime_class_for(render_input: RenderInput, variant: Variant) -> str:
    """The runtime class of the pods that need cards; none where NRI gives them cards, or a hook of CRI-O."""
    cdi = render_input.policy.cdi
    if cdi.nri_plugin_enabled or (not cdi.enabled and variant.runtime is ContainerRuntime.CRIO):
        return ""
    return render_input.policy.operator.runtime_class or RUNTIME_CLASS


def add_nri_devices(daemonset: DaemonSetManifest, *names: str) -> None:
    """Let the NRI plugin give all cards of the node to containers."""
    annotations = {f"nvidia.cdi.k8s.io/container.{name}": _ALL_CARDS for name in names}
    daemonset.template["metadata"].setdefault("annotations", {}).update(annotations)


def configure_cdi(container: ContainerManifest, policy: ClusterPolicySpec) -> None:
    """Tell an operand that writes CDI specs that CDI is on, and where the toolkit installs its CDI hook."""
    if not policy.cdi.enabled:
        return
    container.set_env("CDI_ENABLED", "true")
    if on(policy.toolkit.enabled, absent=True):
        folder = policy.toolkit.install_dir.rstrip("/")
        container.set_env("NVIDIA_CDI_HOOK_PATH", f"{folder}/toolkit/nvidia-cdi-hook")


def set_mig_strategy(container: ContainerManifest, policy: ClusterPolicySpec) -> None:
    """Tell an operand how MIG instances are offered, if the policy says so."""
    if policy.mig is not None and policy.mig.strategy is not None:
        container.set_env("MIG_STRATEGY", policy.mig.strategy.value)


def configure_mig(container: ContainerManifest, policy: ClusterPolicySpec) -> None:
    """Tell an operand how MIG instances are offered, and, unless none are, that it may see all of them."""
    set_mig_strategy(container, policy)
    if policy.mig is None or policy.mig.strategy is not MIGStrategy.NONE:
        container.set_env("NVIDIA_MIG_MONITOR_DEVICES", "all")


def set_mps_root(daemonset: DaemonSetManifest, policy: ClusterPolicySpec) -> None:
    """Mount the pipes and the shared memory of MPS from the host folder that the policy names."""
    root = policy.device_plugin.mps.root.rstrip("/") if policy.device_plugin.mps else ""
    if not root:
        return
    daemonset.move_host_path("mps-root", root)
    daemonset.move_host_path("mps-shm", f"{root}/shm")
    if daemonset.main.env("MPS_ROOT") is not None:
        daemonset.main.set_env("MPS_ROOT", root)


def sandbox_enabled(
    policy: ClusterPolicySpec, section: Operand | None = None, *, mode: SandboxMode | None = None
) -> bool:
    """Whether an operand for virtual machines is deployed: they are on, in `mode` if one is given, and so is its
    section."""
    sandbox = policy.sandbox_workloads
    if not on(sandbox.enabled, absent=False) or (mode is not None and sandbox.mode != mode):
        return False
    return section is None or on(section.enabled, absent=False)


def configure_service_monitors(
    manifests: list[Manifest], settings: ServiceMonitor | None, *, absent: bool
) -> list[Manifest]:
    """All objects, with ServiceMonitors only if they are wanted, and as the policy says. `absent` is what a switch that
    is not set means."""
    wanted = settings or ServiceMonitor()
    if not on(wanted.enabled, absent=absent):
        return [manifest for manifest in manifests if manifest["kind"] != "ServiceMonitor"]
    for manifest in manifests:
        if manifest["kind"] == "ServiceMonitor":
            _configure_service_monitor(manifest, wanted)
    return manifests


def _configure_service_monitor(monitor: Manifest, wanted: ServiceMonitor) -> None:
    monitor["metadata"].setdefault("labels", {}).update(wanted.additional_labels)
    endpoint = monitor["spec"]["endpoints"][0]
    chosen = {
        "interval": wanted.interval,
        "scrapeTimeout": wanted.scrape_timeout,
        "honorLabels": wanted.honor_labels,
        "relabelings": [dict(rule) for rule in wanted.relabelings],
    }
    endpoint.update({name: value for name, value in chosen.items() if value})
