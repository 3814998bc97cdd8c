"""GPUNodeState: one object per GPU node, named after it. The spec is the node's orders, the status its answers.

`pools` alone writes the orders and the agent of the node watches this one object, so a change costs one event to one
node whatever the size of the cluster.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.names import GROUP, VERSION, NodeCondition
from gpu_control_plane.api.scheduling import NUMA, Taint
from gpu_control_plane.api.shapes import InventoryID, Part, PCIAddress, PoolName, ResourceName
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Condition, Object, ObjectMeta, Resource

MAX_CARDS: Final = 64

_Version = Annotated[str, about("Version.", minLength=1, maxLength=64)]


class OfferedResource(Part, frozen=True, kw_only=True):
    """A resource a card is offered in."""

    name: ResourceName
    units: Annotated[int, about("Units the card contributes.", minimum=1, maximum=64)]
    profile: Annotated[str | None, about("MIG profile of the units.", maxLength=24)] = None


class Assignment(Part, frozen=True, kw_only=True):
    """An order: offer this card as these resources."""

    inventory_id: Annotated[InventoryID, about("Card the order is about: the name of its GPUDevice.")]
    pool: Annotated[PoolName, about("Pool the card belongs to.")]
    resources: Annotated[
        tuple[OfferedResource, ...],
        about("Resources the card is offered in.", minItems=1, maxItems=16),
    ]
    allocation: Annotated[Allocation, about("How the card is divided among pods.")]
    numa: Annotated[NUMA | None, about("Whether the cards of one container lie together; Preferred if absent.")] = None


class NodeStateSpec(Part, frozen=True, kw_only=True):
    """The node's orders."""

    assignments: Annotated[
        tuple[Assignment, ...],
        about("Cards the node offers to pods, and as what.", keys=("inventoryID",), maxItems=MAX_CARDS),
    ] = ()


class NodeDevice(Part, frozen=True, kw_only=True):
    """A card of the node."""

    inventory_id: Annotated[InventoryID, about("Name of its GPUDevice.")]
    pci_address: Annotated[PCIAddress, about("Address of the card.")]
    uuid: Annotated[str | None, about("The card's own identity.", maxLength=96)] = None
    product: Annotated[str | None, about("Model of the card.", maxLength=128)] = None
    ignored: Annotated[bool | None, about("True where the label ignore has taken the card out of service.")] = None


class ObservedReport(Part, frozen=True, kw_only=True):
    """A version of the agent's report. Who acts on the status compares it with the NodeFeature that is there now."""

    uid: Annotated[str, about("metadata.uid of the NodeFeature.", minLength=1, maxLength=64)]
    generation: Annotated[int, about("metadata.generation of the NodeFeature.", minimum=0)]

    @classmethod
    def of(cls, report: ObjectMeta) -> "ObservedReport":
        return cls(uid=report.uid, generation=report.generation)

    def covers(self, report: ObjectMeta) -> bool:
        """Whether this is that version of the report, or a later one that our cache does not show yet."""
        return self.uid == report.uid and self.generation >= report.generation


class DriverSource(OpenEnum):
    """Where a driver comes from."""

    HOST = "Host", "installed on the machine."
    CONTAINER = "Container", "brought by a driver container."


class Driver(Part, frozen=True, kw_only=True):
    """The GPU driver of the node."""

    version: Annotated[_Version, about("Version of the driver.")]
    cuda_version: Annotated[_Version | None, about("Newest CUDA version it serves.")] = None
    source: Annotated[DriverSource | None, about("Where it comes from.")] = None


class Injection(OpenEnum):
    """How containers are given a card."""

    CDI = "CDI", "by the container runtime, from a CDI specification."
    RUNTIME = "Runtime", "by a GPU runtime below the container runtime."
    KUBELET = "Kubelet", "by the kubelet, which passes device files and mounts on."


class Toolkit(Part, frozen=True, kw_only=True):
    """What gives cards to containers."""

    injection: Annotated[Injection, about("How containers are given a card.")]
    version: Annotated[_Version | None, about("Version of the toolkit; absent where CDI alone does it.")] = None
    runtime: Annotated[
        str | None, about("Container runtime and version, such as containerd://2.4.2.", maxLength=64)
    ] = None


class MonitoringSource(OpenEnum):
    """What exports metrics of the cards."""

    AGENT = "Agent", "the agent itself."
    DCGM = "DCGM", "a DCGM exporter."


class Monitoring(Part, frozen=True, kw_only=True):
    """What watches the cards."""

    source: Annotated[MonitoringSource, about("What exports metrics of the cards.")]
    version: Annotated[_Version | None, about("Version of it.")] = None


class AgentFunctions(Part, frozen=True, kw_only=True):
    """What the agent does on its node, as it publishes it. An agent of an older release does not say."""

    labels: Annotated[bool | None, about("Whether it writes the labels of feature discovery to the Node.")] = None
    checks: Annotated[bool | None, about("Whether it checks the driver, the toolkit and the cards.")] = None
    burn_in: Annotated[bool | None, about("Whether it tests new cards before they may join a pool.")] = None
    exporter: Annotated[bool | None, about("Whether it exports metrics of the cards.")] = None
    runtime_configured: Annotated[
        bool | None, about("Whether files of the container runtime hold entries of ours, to be undone.")
    ] = None


class PendingCard(Part, frozen=True, kw_only=True):
    """A card that could join a pool."""

    inventory_id: Annotated[InventoryID, about("Name of its GPUDevice.")]
    reason: Annotated[str | None, about("Why it is in no pool, in one word.", maxLength=64)] = None


class AssignedCard(Part, frozen=True, kw_only=True):
    """A card that is in a pool."""

    inventory_id: Annotated[InventoryID, about("Name of its GPUDevice.")]
    pool: Annotated[PoolName, about("Pool it is in.")]


class NodePools(Part, frozen=True, kw_only=True):
    """The node's cards as the pools see them."""

    pending: Annotated[
        tuple[PendingCard, ...],
        about("Cards that wait for a pool or an approval.", maxItems=MAX_CARDS),
    ] = ()
    assigned: Annotated[tuple[AssignedCard, ...], about("Cards in a pool.", maxItems=MAX_CARDS)] = ()


class StepResult(OpenEnum):
    """How a check ended."""

    PASSED = "Passed", "it works."
    FAILED = "Failed", "it does not work."
    RUNNING = "Running", "not known yet."
    SKIPPED = "Skipped", "switched off, or an earlier step failed."


class ValidationStep(Part, frozen=True, kw_only=True):
    """One check of the node."""

    name: Annotated[
        str,
        about("What was checked: driver, toolkit, cuda, plugin, nvidia-fs or gdrcopy.", minLength=1, maxLength=32),
    ]
    result: Annotated[StepResult, about("How it ended.")]
    message: Annotated[str | None, about("What went wrong and what to do.", maxLength=1024)] = None
    at: Annotated[datetime | None, about("When it ended.")] = None


class Validation(Part, frozen=True, kw_only=True):
    """Whether the software on the node really works."""

    driver_version: Annotated[_Version | None, about("Driver that was loaded during the checks.")] = None
    steps: Annotated[tuple[ValidationStep, ...], about("The checks, in order.", maxItems=16)] = ()


class ProblemReason(OpenEnum):
    """Why an order is not carried out as it stands."""

    MISCONFIGURED = "Misconfigured", "this card can never be what the order asks for."
    WAITING = "Waiting", "a pod or a program still holds the card, or a part of it."
    FAILED = "Failed", "the driver refused; it is tried again."


class PluginResource(Part, frozen=True, kw_only=True):
    """A resource as the kubelet knows it."""

    name: ResourceName
    units: Annotated[int, about("Units announced.", minimum=0)]
    healthy: Annotated[int, about("Units of them that can be handed out.", minimum=0)]
    inventory_ids: Annotated[
        tuple[InventoryID, ...],
        about("Cards behind the units; left out for cards in no pool.", unique=True, maxItems=MAX_CARDS),
    ] = ()


class OrderProblem(Part, frozen=True, kw_only=True):
    """An order that is not carried out as it stands."""

    inventory_id: Annotated[InventoryID, about("Card the order is about.")]
    reason: Annotated[ProblemReason, about("What kind of problem it is.")]
    message: Annotated[str, about("What is wrong, or waited for, and what to do.", maxLength=1024)]


class Plugin(Part, frozen=True, kw_only=True):
    """What the agent has announced to the kubelet."""

    observed_generation: Annotated[int, about("Generation of the orders that this answers.", minimum=0)]
    resources: Annotated[tuple[PluginResource, ...], about("Resources announced.", maxItems=128)] = ()
    used: Annotated[int | None, about("Units of all resources that pods hold.", minimum=0)] = None
    free: Annotated[int | None, about("Units of all resources that a pod could be given now.", minimum=0)] = None
    problems: Annotated[
        tuple[OrderProblem, ...],
        about("Orders that are not carried out as they stand.", maxItems=MAX_CARDS),
    ] = ()
    conflicts: Annotated[
        tuple[Annotated[str, about(maxLength=256)], ...],
        about("Other device plugins that serve cards of this node; nothing is issued meanwhile.", maxItems=16),
    ] = ()
    driver_hung: Annotated[
        bool | None,
        about("True while a call into the driver does not return; nothing is issued meanwhile."),
    ] = None


class Quiesced(Part, frozen=True, kw_only=True):
    """The agent has let go of the driver."""

    since: Annotated[datetime, about("When the last handle was closed.")]
    reason: Annotated[str, about("What it makes room for, such as paused-for-driver-upgrade.", maxLength=128)]


class NodeStateStatus(Part, frozen=True, kw_only=True):
    """What the node has and what it has done."""

    device_count: Annotated[int | None, about("Number of cards.", minimum=0, maximum=MAX_CARDS)] = None
    devices: Annotated[tuple[NodeDevice, ...], about("Cards of the node.", maxItems=MAX_CARDS)] = ()
    observed_report: Annotated[
        ObservedReport | None,
        about("Report of the agent (NodeFeature) that inventory has taken into this status.", atomic=True),
    ] = None
    driver: Annotated[Driver | None, about("GPU driver of the node.", atomic=True)] = None
    toolkit: Annotated[Toolkit | None, about("What gives cards to containers.", atomic=True)] = None
    monitoring: Annotated[Monitoring | None, about("What exports metrics of the cards.", atomic=True)] = None
    agent: Annotated[
        AgentFunctions | None, about("What the agent does on the node; absent where it does not say.", atomic=True)
    ] = None
    pools: Annotated[NodePools | None, about("The node's cards as the pools see them.", atomic=True)] = None
    validation: Annotated[Validation | None, about("Whether the software on the node really works.", atomic=True)] = (
        None
    )
    plugin: Annotated[Plugin | None, about("What the agent has announced to the kubelet.", atomic=True)] = None
    taints: Annotated[
        tuple[Taint, ...],
        about("Taints of the Node that pools have set; those of others are not listed.", maxItems=64),
    ] = ()
    quiesced: Annotated[
        Quiesced | None,
        about("Present while the agent has released the driver, so that it can be reloaded.", atomic=True),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        about("State of the inventory, the software and the readiness of the node.", keys=("type",), maxItems=16),
    ] = ()


class GPUNodeState(Object, frozen=True, kw_only=True):
    """A node with GPUs: its cards, its software, and which cards it offers to pods. It has the name of the Node."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version=VERSION, kind="GPUNodeState", plural="gpunodestates", namespaced=False
    )
    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.spec) || !has(self.spec.assignments) || size(self.metadata.name) > 236 || "
            "self.spec.assignments.all(a, size(a.inventoryID) > size(self.metadata.name) && "
            "a.inventoryID.substring(0, size(self.metadata.name)) == self.metadata.name)",
            "assignments may only name cards of this node: their inventoryID begins with the node's name",
        ),
    )

    spec: Annotated[NodeStateSpec, about("The node's orders.")] = NodeStateSpec()
    status: Annotated[NodeStateStatus, about("What the node has and what it has done.")] = NodeStateStatus()


def _condition(name: NodeCondition) -> str:
    return f'.status.conditions[?(@.type=="{name}")].status'


DEFINITION: Final = Definition(
    kind=GPUNodeState,
    short_names=("gns", "gpunodeinventory", "gpunodeinventories"),
    categories=("gpus",),
    columns=(
        Column("Cards", ".status.deviceCount", "integer", "Number of cards"),
        Column("Used", ".status.plugin.used", "integer", "Units that pods hold"),
        Column("Free", ".status.plugin.free", "integer", "Units that a pod could be given now"),
        Column("Ready", _condition(NodeCondition.READY_FOR_POOLING), description="Whether its cards may join pools"),
        Column("Degraded", _condition(NodeCondition.DEGRADED), description="Whether something is wrong"),
        Column("Driver", ".status.driver.version", description="Version of the GPU driver"),
        Column("CUDA", ".status.driver.cudaVersion", description="Newest CUDA version served", priority=1),
        Column(
            "Complete",
            _condition(NodeCondition.INVENTORY_COMPLETE),
            description="Whether all cards are known",
            priority=1,
        ),
        AGE,
    ),
    selectable=(".status.driver.version",),
)
