"""NVIDIADriver, `nvidia.com/v1alpha1`: which driver goes to which nodes, where one for all is not enough."""

from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.nvidia.choices import KernelModuleType
from gpu_control_plane.api.nvidia.fields import (
    RDMA,
    DriverManager,
    EnvVar,
    ImageParts,
    KernelAddOn,
    Labels,
    Named,
    PodPart,
    Probe,
    Resources,
    Section,
    Toleration,
)
from gpu_control_plane.api.nvidia.names import GROUP
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.upgradepolicy import DriverUpgradePolicy
from gpu_control_plane.kube.crd import Column, Definition
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Object, Resource


class DriverType(OpenEnum):
    """What a driver is for."""

    GPU = "gpu", "containers on the node."
    VGPU = "vgpu", "the guest side of vGPU."
    VGPU_HOST_MANAGER = "vgpu-host-manager", "the host side of vGPU."


class DriverLicensing(Section, frozen=True, kw_only=True):
    """The licence of a vGPU driver."""

    secret_name: Annotated[str, about("Secret with gridd.conf and the token.")] = ""
    name: Annotated[str, about("ConfigMap with them; deprecated, the Secret wins.")] = ""
    nls_enabled: Annotated[bool | None, about("Whether NVIDIA's licence system is used; yes if absent.")] = None


class NVIDIADriverSpec(ImageParts, frozen=True, kw_only=True):
    """A driver and the nodes it is for."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.default) && self.default) || !has(self.nodeSelector) || size(self.nodeSelector) == 0",
            "the default NVIDIADriver takes the nodes that no other one selects: remove nodeSelector or default",
        ),
        Rule(
            "self.driverType == oldSelf.driverType",
            "driverType cannot be changed: delete the object and create another",
        ),
        Rule(
            "(has(self.usePrecompiled) && self.usePrecompiled) == "
            "(has(oldSelf.usePrecompiled) && oldSelf.usePrecompiled)",
            "usePrecompiled cannot be changed: delete the object and create another",
        ),
    )

    default: Annotated[
        bool, about("Whether it takes the GPU nodes that no other one selects.", default=True, required=True)
    ] = False
    driver_type: Annotated[DriverType, about("What the driver is for.", default=True, required=True)] = DriverType.GPU
    image: Annotated[str, about("Name of the image, or all of it.", default=True, required=True)] = (
        "nvcr.io/nvidia/driver"
    )
    use_precompiled: Annotated[bool | None, about("Whether modules come ready for each kernel; no if absent.")] = None
    use_open_kernel_modules: Annotated[bool, about("See kernelModuleType.", effect=False)] = False
    kernel_module_type: Annotated[KernelModuleType, about("Which modules are loaded.", default=True)] = (
        KernelModuleType.AUTO
    )
    startup_probe: Annotated[Probe | None, about("How long the driver may take to load.")] = None
    liveness_probe: Annotated[Probe | None, about("How the driver is watched.", effect=False)] = None
    readiness_probe: Annotated[Probe | None, about("When the driver counts as ready.", effect=False)] = None
    rdma: Annotated[RDMA | None, about("GPUDirect RDMA.")] = None
    gds: Annotated[KernelAddOn | None, about("GPUDirect Storage.")] = None
    gdrcopy: Annotated[KernelAddOn | None, about("GDRCopy.")] = None
    upgrade_policy: Annotated[DriverUpgradePolicy | None, about("How upgrades go through its nodes.")] = None
    manager: Annotated[DriverManager, about("What prepares a node for a driver.")] = DriverManager()
    repo_config: Annotated[Named | None, about("Package repositories.")] = None
    cert_config: Annotated[Named | None, about("Certificates of package repositories.")] = None
    licensing_config: Annotated[DriverLicensing | None, about("Licence of a vGPU driver.")] = None
    virtual_topology_config: Annotated[Named | None, about("Topology that a vGPU guest is told.")] = None
    kernel_module_config: Annotated[Named | None, about("Parameters of the kernel modules.")] = None
    secret_env: Annotated[str, about("Secret whose keys become environment variables.")] = ""
    resources: Annotated[Resources | None, about("Resources of its containers.")] = None
    args: Annotated[tuple[str, ...], about("Arguments after `init`.")] = ()
    env: Annotated[tuple[EnvVar, ...], about("Environment of the driver; it wins over ours.")] = ()
    host_network: Annotated[bool | None, about("Whether its pods use the network of the node.")] = None
    node_selector: Annotated[Labels | None, about("Labels of its nodes; all GPU nodes if absent.")] = None
    node_affinity: Annotated[PodPart | None, about("Affinity to nodes.", effect=False)] = None
    labels: Annotated[Labels, about("Labels of its DaemonSets and pods.")] = {}
    annotations: Annotated[Labels, about("Annotations of its DaemonSets and pods.")] = {}
    tolerations: Annotated[tuple[Toleration, ...], about("Tolerations beside the built-in one.")] = ()
    priority_class_name: Annotated[str, about("PriorityClass instead of system-node-critical.")] = ""
    pod_security_context: Annotated[PodPart | None, about("Security context of its pods.")] = None


class NVIDIADriver(Object, frozen=True, kw_only=True):
    """A driver and the nodes it is for. In force while the ClusterPolicy says useNvidiaDriverCRD."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version="v1alpha1", kind="NVIDIADriver", plural="nvidiadrivers", namespaced=False
    )

    spec: Annotated[NVIDIADriverSpec, about("What should run.")]
    status: Annotated[StackStatus, about("What runs.")] = StackStatus()


DEFINITION: Final = Definition(
    kind=NVIDIADriver,
    short_names=("nvd", "nvdriver", "nvdrivers"),
    columns=(
        Column("Status", ".status.state", description="The whole in one word"),
        Column("Default", ".spec.default", "boolean", "Whether it takes the nodes no other one selects"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
