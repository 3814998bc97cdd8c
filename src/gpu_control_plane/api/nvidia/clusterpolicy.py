"""ClusterPolicy, `nvidia.com/v1`: the whole software stack of all GPU nodes in one object, as NVIDIA's operator has it.

A field that is accepted but has no effect says so in its description.
"""

from typing import Annotated, ClassVar, Final

import msgspec

from gpu_control_plane.api.nvidia.choices import (
    CCMode,
    KernelModuleType,
    MIGDefault,
    MIGStrategy,
    SandboxMode,
    UpdateStrategy,
    Workload,
)
from gpu_control_plane.api.nvidia.fields import (
    RDMA,
    DriverManager,
    Env,
    Image,
    KernelAddOn,
    Labels,
    Named,
    Operand,
    PodPart,
    Probe,
    Section,
    ServiceMonitor,
    Toleration,
)
from gpu_control_plane.api.nvidia.names import GROUP
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube.crd import Column, Definition
from gpu_control_plane.kube.fields import Rule, about
from gpu_control_plane.kube.objects import Object, Resource

_NRI: Final = "has(self.cdi) && has(self.cdi.nriPluginEnabled) && self.cdi.nriPluginEnabled"


class OperatorMetrics(Section, frozen=True, kw_only=True):
    """Metrics of the operator itself."""

    service_monitor: Annotated[ServiceMonitor | None, about("How Prometheus scrapes the operator.")] = None


class OperatorSection(Section, frozen=True, kw_only=True):
    """The operator itself."""

    runtime_class: Annotated[str, about("Name of the RuntimeClass of the operands.", default=True)] = "nvidia"
    metrics: Annotated[OperatorMetrics | None, about("Metrics of the operator.")] = None
    use_ocp_driver_toolkit: Annotated[
        bool | None, about("On OpenShift, whether drivers are built in its Driver Toolkit; yes if absent.")
    ] = msgspec.field(name="use_ocp_driver_toolkit", default=None)
    default_runtime: Annotated[str, about("Container runtime.", effect=False)] = ""
    init_container: Annotated[Image | None, about("Image of an init container.", effect=False)] = None
    labels: Annotated[Labels, about("Labels.", effect=False)] = {}
    annotations: Annotated[Labels, about("Annotations.", effect=False)] = {}


class RollingUpdate(Section, frozen=True, kw_only=True):
    """How fast pods are replaced."""

    max_unavailable: Annotated[str, about("Pods of a DaemonSet replaced at a time: a number or a percentage.")] = ""


class DaemonSets(Section, frozen=True, kw_only=True):
    """What all operands have in common."""

    labels: Annotated[Labels, about("Labels of DaemonSets and their pods.")] = {}
    annotations: Annotated[Labels, about("Annotations of DaemonSets and their pods.")] = {}
    tolerations: Annotated[tuple[Toleration, ...], about("Tolerations instead of the built-in one.")] = ()
    priority_class_name: Annotated[str, about("PriorityClass instead of system-node-critical.")] = ""
    update_strategy: Annotated[UpdateStrategy, about("How pods are replaced.", default=True)] = (
        UpdateStrategy.ROLLING_UPDATE
    )
    rolling_update: Annotated[RollingUpdate | None, about("How fast pods are replaced.")] = None
    pod_security_context: Annotated[PodPart | None, about("Security context of the pods.")] = None


class ConfigMapRef(Section, frozen=True, kw_only=True):
    """Package repositories for the driver container."""

    config_map_name: Annotated[str, about("Name of the ConfigMap.")] = ""


class Licensing(Section, frozen=True, kw_only=True):
    """The licence of a vGPU driver."""

    secret_name: Annotated[str, about("Secret with gridd.conf and the token.")] = ""
    config_map_name: Annotated[str, about("ConfigMap with them; deprecated, the Secret wins.")] = ""
    nls_enabled: Annotated[bool | None, about("Whether NVIDIA's licence system is used; no if absent.")] = None


class VirtualTopology(Section, frozen=True, kw_only=True):
    """The topology that a vGPU guest is told."""

    config: Annotated[str, about("ConfigMap with topologyd's file.")] = ""


class DriverSection(Operand, frozen=True, kw_only=True):
    """The driver container. Deployed if `enabled` is absent."""

    use_nvidia_driver_crd: Annotated[
        bool | None, about("Whether NVIDIADrivers say which driver goes where; no if absent.")
    ] = None
    use_precompiled: Annotated[bool | None, about("Whether modules come ready for each kernel; no if absent.")] = None
    use_open_kernel_modules: Annotated[bool, about("See kernelModuleType.", effect=False)] = False
    kernel_module_type: Annotated[KernelModuleType, about("Which modules are loaded.", default=True)] = (
        KernelModuleType.AUTO
    )
    startup_probe: Annotated[Probe | None, about("How long the driver may take to load.")] = None
    liveness_probe: Annotated[Probe | None, about("How the driver is watched.")] = None
    readiness_probe: Annotated[Probe | None, about("When the driver counts as ready.")] = None
    rdma: Annotated[RDMA | None, about("GPUDirect RDMA.")] = None
    upgrade_policy: Annotated[UpgradePolicy | None, about("How upgrades go through the fleet.")] = None
    manager: Annotated[DriverManager, about("What prepares a node for a driver.")] = DriverManager()
    repo_config: Annotated[ConfigMapRef | None, about("Package repositories.")] = None
    cert_config: Annotated[Named | None, about("Certificates of package repositories.")] = None
    licensing_config: Annotated[Licensing | None, about("Licence of a vGPU driver.")] = None
    virtual_topology: Annotated[VirtualTopology | None, about("Topology that a vGPU guest is told.")] = None
    kernel_module_config: Annotated[Named | None, about("Parameters of the kernel modules.")] = None
    secret_env: Annotated[str, about("Secret whose keys become environment variables.")] = ""


class ToolkitSection(Operand, frozen=True, kw_only=True):
    """The container toolkit. Deployed if `enabled` is absent."""

    args: Annotated[tuple[str, ...], about("Arguments.", effect=False)] = ()
    install_dir: Annotated[str, about("Where on the host it is installed.", default=True)] = "/usr/local/nvidia"


class PluginConfig(Section, frozen=True, kw_only=True):
    """Configurations of the device plugin, of which each node chooses one by a label."""

    name: Annotated[str, about("Name of the ConfigMap.")] = ""
    default: Annotated[str, about("The one for nodes without the label.")] = ""


class MPS(Section, frozen=True, kw_only=True):
    """MPS, by which several programs compute on one card at the same time."""

    root: Annotated[str, about("Folder of its pipes and shared memory.", default=True)] = "/run/nvidia/mps"


class DevicePluginSection(Operand, frozen=True, kw_only=True):
    """NVIDIA's device plugin. Deployed if `enabled` is absent, on nodes where the agent's is off."""

    config: Annotated[PluginConfig | None, about("Configurations to choose from.")] = None
    mps: Annotated[MPS | None, about("MPS.")] = None


class DCGMSection(Operand, frozen=True, kw_only=True):
    """The DCGM host engine. Deployed if `enabled` is absent."""

    host_port: Annotated[int | None, about("Port on the node; deprecated.", effect=False, maximum=2**31 - 1)] = None


class ExporterService(Section, frozen=True, kw_only=True):
    """The Service in front of the exporter."""

    type: Annotated[str, about("Type of the Service.")] = ""
    internal_traffic_policy: Annotated[str, about("Cluster or Local.")] = ""


class HPCJobMapping(Section, frozen=True, kw_only=True):
    """Which job of a batch system uses which card."""

    enabled: Annotated[bool | None, about("Whether jobs are named in metrics; no if absent.")] = None
    directory: Annotated[str, about("Where the batch system says so; /var/lib/dcgm-exporter/job-mapping if empty.")] = (
        ""
    )


class DCGMExporterSection(Operand, frozen=True, kw_only=True):
    """The DCGM exporter. Deployed if `enabled` is absent."""

    config: Annotated[Named | None, about("Which metrics are exported.")] = None
    service_monitor: Annotated[ServiceMonitor | None, about("How Prometheus scrapes it.")] = None
    service: Annotated[ExporterService | None, about("The Service in front of it.")] = None
    annotations: Annotated[Labels, about("Annotations of its pods.")] = {}
    host_pid: Annotated[bool | None, about("Whether it sees the processes of the node; no if absent.")] = None
    hpc_job_mapping: Annotated[HPCJobMapping | None, about("Jobs of a batch system in metrics.")] = None
    enable_pod_labels: Annotated[bool | None, about("Whether labels of pods are in metrics; no if absent.")] = None
    enable_pod_uid: Annotated[bool | None, about("Whether UIDs of pods are in metrics; no if absent.")] = None
    pod_label_allowlist_regex: Annotated[tuple[str, ...], about("Labels of pods that are in metrics.")] = ()


class MIG(Section, frozen=True, kw_only=True):
    """How MIG instances are offered."""

    strategy: Annotated[MIGStrategy | None, about("How MIG instances are offered.")] = None


class MIGManagerConfig(Section, frozen=True, kw_only=True):
    """Layouts of MIG instances."""

    name: Annotated[str, about("ConfigMap instead of the built-in one.")] = ""
    default: Annotated[MIGDefault, about("Layout for nodes without a label.", default=True)] = MIGDefault.ALL_DISABLED


class MIGManagerSection(Operand, frozen=True, kw_only=True):
    """The MIG manager. Deployed if `enabled` is absent, on nodes whose cards can do MIG."""

    config: Annotated[MIGManagerConfig | None, about("Layouts to choose from.")] = None
    gpu_clients_config: Annotated[Named | None, about("Programs on the host that are stopped meanwhile.")] = None


class ValidatorSection(Operand, frozen=True, kw_only=True):
    """The validator. Always deployed."""

    enabled: Annotated[bool | None, about("Whether it is deployed: it always is.", effect=False)] = True
    driver: Annotated[Env | None, about("Check of the driver.")] = None
    toolkit: Annotated[Env | None, about("Check of the toolkit.")] = None
    cuda: Annotated[Env | None, about("Check with a kernel.")] = None
    plugin: Annotated[Env | None, about("Check of the device plugin.")] = None
    vfio_pci: Annotated[Env | None, about("Check of the binding to vfio-pci.")] = None
    vgpu_manager: Annotated[Env | None, about("Check of the vGPU manager.")] = None
    vgpu_devices: Annotated[Env | None, about("Check of the vGPU devices.")] = None


class SandboxWorkloads(Section, frozen=True, kw_only=True):
    """Virtual machines."""

    enabled: Annotated[bool | None, about("Whether cards may be for virtual machines; no if absent.")] = None
    default_workload: Annotated[Workload, about("What nodes without a label are for.", default=True)] = (
        Workload.CONTAINER
    )
    mode: Annotated[SandboxMode, about("What runs the virtual machines.", default=True)] = SandboxMode.KUBEVIRT


class VFIOManagerSection(Operand, frozen=True, kw_only=True):
    """What binds cards to vfio-pci. Not deployed if `enabled` is absent."""

    driver_manager: Annotated[DriverManager, about("What prepares a node.")] = DriverManager()


class VGPUManagerSection(Operand, frozen=True, kw_only=True):
    """The vGPU host driver. Not deployed if `enabled` is absent."""

    driver_manager: Annotated[DriverManager, about("What prepares a node.")] = DriverManager()
    kernel_module_config: Annotated[Named | None, about("Parameters of the kernel modules.")] = None


class VGPUDevicesConfig(Section, frozen=True, kw_only=True):
    """Layouts of vGPU devices."""

    name: Annotated[str, about("ConfigMap instead of the built-in one.")] = ""
    default: Annotated[str, about("Layout for nodes without a label.", default=True)] = "default"


class VGPUDeviceManagerSection(Operand, frozen=True, kw_only=True):
    """What makes vGPU devices. Not deployed if `enabled` is absent."""

    config: Annotated[VGPUDevicesConfig | None, about("Layouts to choose from.")] = None


class CCManagerSection(Operand, frozen=True, kw_only=True):
    """Confidential computing. Not deployed if `enabled` is absent."""

    default_mode: Annotated[CCMode | None, about("Mode for nodes without a label.")] = None


class KataArtifacts(Section, frozen=True, kw_only=True):
    """What a Kata runtime class needs."""

    url: Annotated[str, about("Where it is.", required=True)] = ""
    pull_secret: Annotated[str, about("Secret with which it is pulled.")] = ""


class KataRuntimeClass(Section, frozen=True, kw_only=True):
    """A Kata runtime class."""

    name: Annotated[str, about("Its name.", required=True)] = ""
    node_selector: Annotated[Labels, about("Nodes it is for.")] = {}
    artifacts: Annotated[KataArtifacts | None, about("What it needs.", required=True)] = None


class KataConfig(Section, frozen=True, kw_only=True):
    """Kata runtime classes."""

    artifacts_dir: Annotated[str, about("Where they are kept on the host.", default=True)] = (
        "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"
    )
    runtime_classes: Annotated[tuple[KataRuntimeClass, ...], about("Which there are.")] = ()


class KataManagerSection(Operand, frozen=True, kw_only=True):
    """Kata's own manager. It is never deployed."""

    config: Annotated[KataConfig | None, about("Runtime classes.")] = None


class CDI(Section, frozen=True, kw_only=True):
    """How containers are given a card."""

    enabled: Annotated[bool, about("Whether by CDI.", default=True)] = True
    nri_plugin_enabled: Annotated[bool, about("Whether by an NRI plugin.", default=True)] = False
    default: Annotated[bool, about("Whether CDI is the default.", default=True, effect=False)] = False


class Switch(Section, frozen=True, kw_only=True):
    """A switch."""

    enabled: Annotated[bool | None, about("On or off; off if absent.")] = None


class HostPaths(Section, frozen=True, kw_only=True):
    """Where things lie on the host."""

    root_fs: Annotated[str, about("The host's root; / if empty.")] = ""
    driver_install_dir: Annotated[str, about("Root of the driver container; /run/nvidia/driver if empty.")] = ""
    kubelet_root_dir: Annotated[str, about("Folder of the kubelet.", default=True)] = "/var/lib/kubelet"


class ClusterPolicySpec(Section, frozen=True, kw_only=True):
    """The software stack of all GPU nodes."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!({_NRI}) || !has(self.cdi.enabled) || self.cdi.enabled",
            "cdi.nriPluginEnabled needs cdi.enabled: the NRI plugin hands out cards by CDI",
        ),
        Rule(
            f"!({_NRI}) || !has(self.toolkit.enabled) || self.toolkit.enabled",
            "cdi.nriPluginEnabled needs toolkit.enabled: the NRI plugin is a part of the toolkit",
        ),
    )

    operator: Annotated[OperatorSection, about("The operator itself.")]
    daemonsets: Annotated[DaemonSets, about("What all operands have in common.")]
    driver: Annotated[DriverSection, about("The driver.")]
    toolkit: Annotated[ToolkitSection, about("What lets containers use a card.")]
    device_plugin: Annotated[DevicePluginSection, about("What offers cards to pods.")]
    dcgm: Annotated[DCGMSection, about("The DCGM host engine.")]
    dcgm_exporter: Annotated[DCGMExporterSection, about("What exports metrics of the cards.")]
    node_status_exporter: Annotated[Operand, about("What exports the state of the node; off if `enabled` is absent.")]
    gfd: Annotated[Operand, about("What labels nodes with features of their cards; on if `enabled` is absent.")]
    mig: Annotated[MIG | None, about("How MIG instances are offered.")] = None
    mig_manager: Annotated[MIGManagerSection, about("What divides cards.")] = MIGManagerSection()
    validator: Annotated[ValidatorSection, about("What checks that all this works.")] = ValidatorSection()
    gds: Annotated[KernelAddOn | None, about("GPUDirect Storage.")] = None
    gdrcopy: Annotated[KernelAddOn | None, about("GDRCopy.")] = None
    sandbox_workloads: Annotated[SandboxWorkloads, about("Virtual machines.")] = SandboxWorkloads()
    vfio_manager: Annotated[VFIOManagerSection, about("What binds cards to vfio-pci.")] = VFIOManagerSection()
    vgpu_manager: Annotated[VGPUManagerSection, about("The vGPU host driver.")] = VGPUManagerSection()
    vgpu_device_manager: Annotated[VGPUDeviceManagerSection, about("What makes vGPU devices.")] = (
        VGPUDeviceManagerSection()
    )
    sandbox_device_plugin: Annotated[Operand, about("What offers cards to KubeVirt.")] = Operand()
    kata_sandbox_device_plugin: Annotated[Operand, about("What offers cards to Kata Containers.")] = Operand()
    cc_manager: Annotated[CCManagerSection, about("Confidential computing.")] = CCManagerSection()
    kata_manager: Annotated[KataManagerSection | None, about("Kata's own manager.", effect=False)] = None
    cdi: Annotated[CDI, about("How containers are given a card.")] = CDI()
    psa: Annotated[Switch, about("Whether the namespace is marked privileged for Pod Security.")] = Switch()
    psp: Annotated[Switch | None, about("Pod security policies.", effect=False)] = None
    host_paths: Annotated[HostPaths, about("Where things lie on the host.")] = HostPaths()


class ClusterPolicy(Object, frozen=True, kw_only=True):
    """The software stack of all GPU nodes. The oldest ClusterPolicy is in force; others are ignored."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version="v1", kind="ClusterPolicy", plural="clusterpolicies", namespaced=False
    )

    spec: Annotated[ClusterPolicySpec, about("What should run.")]
    status: Annotated[StackStatus, about("What runs.")] = StackStatus()


DEFINITION: Final = Definition(
    kind=ClusterPolicy,
    columns=(
        Column("Status", ".status.state", description="The whole in one word"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
