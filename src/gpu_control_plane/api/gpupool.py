"""GPUPool: a named set of cards, who may use them, and how they are handed out. People write the spec."""

from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.access import Access, Quota
from gpu_control_plane.api.allocation import Allocation, PoolAllocation, resource_suffix
from gpu_control_plane.api.deviceselector import DeviceSelector
from gpu_control_plane.api.names import GROUP, VERSION
from gpu_control_plane.api.scheduling import Scheduling
from gpu_control_plane.api.selectors import Selector
from gpu_control_plane.api.shapes import DNS_LABEL, NodeName, Part, ResourceName, time_span
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Condition, Object, Resource

MAX_WORST_NODES: Final = 20
MAX_WAITING: Final = 24
MAX_RESOURCES: Final = 32
"""Those of one layout, and while it changes those of the next."""

MAX_RESOURCE_NAME: Final = 230
"""With the profile of a mixed layout after it, the name has to fit into a key of a ConfigMap: 253 characters."""

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LAST_PART: Final = (
    "(has(self.spec.resource) && has(self.spec.resource.name) "
    "? self.spec.resource.name.substring(self.spec.resource.name.lastIndexOf('/') + 1) : self.metadata.name)"
)


class Backend(OpenEnum):
    """How cards reach pods."""

    DEVICE_PLUGIN = "DevicePlugin", "as extended resources in resources.limits."
    DRA = "DRA", "by dynamic resource allocation; not available yet."


class PoolPhase(OpenEnum):
    """Where a pool stands."""

    PENDING = "Pending", "no card is on offer yet."
    READY = "Ready", "pods can ask for its resources."
    MAINTENANCE = "Maintenance", "new pods are refused while cards are divided again."
    MISCONFIGURED = "Misconfigured", "the spec, or a part of it, cannot be carried out; the conditions say why."
    DELETING = "Deleting", "the pool goes when its last card is free."


class PoolResource(Part, frozen=True, kw_only=True):
    """The resource pods ask for."""

    name: Annotated[
        ResourceName | None,
        about(
            "Extended resource that pods put into resources.limits; gpu.deckhouse.io/<pool> if absent.",
            Rule(
                f"self.matches('^{_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$')",
                "write resource.name as <domain>/<name> with at most 63 characters after '/', "
                "such as gpu.example.com/training",
            ),
            Rule(
                "!self.contains('kubernetes.io/')",
                "resources under kubernetes.io belong to Kubernetes: use a domain of your own",
            ),
            Rule(
                "!self.startsWith('requests.')",
                "a resource name cannot begin with 'requests.', which quotas use: choose another domain",
            ),
            maxLength=MAX_RESOURCE_NAME,
        ),
    ] = None


class PoolAssignment(Part, frozen=True, kw_only=True):
    """Who approves cards for the pool."""

    require_annotation: Annotated[
        bool,
        about(
            "Whether each card needs an approval, the annotation gpu.deckhouse.io/assignment; "
            "with false every card the selector matches is taken.",
            default=True,
        ),
    ] = True
    auto_approve_selector: Annotated[
        Selector | None, about("Cards (GPUDevices) with these labels are approved without a person; {} means all.")
    ] = None

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.requireAnnotation || !has(self.autoApproveSelector)",
            "requireAnnotation: false approves every matching card, so autoApproveSelector would narrow nothing: "
            "remove one of the two",
        ),
    )


class MaintenanceStrategy(OpenEnum):
    """How a change of spec.allocation is carried out."""

    POOL = "Pool", "all cards at once: new pods are refused until those that run have ended."
    NODE = "Node", "one node after the other: the rest of the pool goes on serving."


class PoolMaintenance(Part, frozen=True, kw_only=True):
    """How a change of spec.allocation is carried out. It never ends a pod."""

    strategy: Annotated[MaintenanceStrategy, about("All cards at once, or node by node.", default=True)] = (
        MaintenanceStrategy.POOL
    )
    deadline: Annotated[
        str,
        about(
            "How long it may take before the pool says that it is overdue, such as 90m or 24h.",
            Rule(
                "self.matches('^([0-9]{1,5}[smh])+$') && duration(self) >= duration('10s') && "
                "duration(self) <= duration('720h')",
                "write maintenance.deadline as a duration from 10s to 720h, such as 90m or 24h",
            ),
            default=True,
            maxLength=16,
        ),
    ] = "24h"

    @property
    def time_limit(self) -> timedelta:
        """`deadline` as a span of time."""
        return time_span(self.deadline)


class PoolSpec(Part, frozen=True, kw_only=True):
    """Which cards, for whom, and how they are handed out."""

    resource: Annotated[PoolResource | None, about("The resource pods ask for.")] = None
    device_selector: Annotated[DeviceSelector | None, about("Which cards may join the pool; every card if absent.")] = (
        None
    )
    allocation: Annotated[
        PoolAllocation,
        about("How cards are divided among pods. A change puts the pool into Maintenance first.", default=True),
    ] = PoolAllocation()
    assignment: Annotated[PoolAssignment, about("Who approves cards for the pool.", default=True)] = PoolAssignment()
    access: Annotated[
        Access | None,
        about(
            "Who may ask for the pool's resources; any match is enough. "
            "If absent, only those with the RBAC verb use on the pool."
        ),
    ] = None
    quotas: Annotated[
        tuple[Quota, ...],
        about("What single namespaces may hold at once.", keys=("namespace",), maxItems=256),
    ] = ()
    scheduling: Annotated[Scheduling, about("Where pods are put.", default=True)] = Scheduling()
    maintenance: Annotated[PoolMaintenance, about("How a change of spec.allocation is carried out.", default=True)] = (
        PoolMaintenance()
    )
    backend: Annotated[
        Backend,
        about(
            "How cards reach pods.",
            Rule("self != 'DRA'", "the DRA backend does not work yet: use DevicePlugin"),
            default=True,
        ),
    ] = Backend.DEVICE_PLUGIN

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.quotas) || self.quotas.all(q, !has(q.profiles) || (has(self.allocation.mig) && "
            "has(self.allocation.mig.layout) && q.profiles.all(p, self.allocation.mig.layout.exists(part, "
            "part.profile.replace('+', '.') == p.profile.replace('+', '.')))))",
            "quotas by profile may only name profiles of allocation.mig.layout: use units, or correct the profile",
        ),
        Rule(
            "self.allocation.mode != 'MIG' || !has(self.deviceSelector) || !has(self.deviceSelector.include) || "
            "!has(self.deviceSelector.include.migCapable) || self.deviceSelector.include.migCapable",
            "mode MIG needs cards that can be cut: remove deviceSelector.include.migCapable: false",
        ),
    )


_Total = Annotated[int, about("Units the pool has, whatever has become of them.", minimum=0)]
_Used = Annotated[int, about("Units held by pods.", minimum=0)]
_Reserved = Annotated[int, about("Units promised to pods that do not run yet.", minimum=0)]
_Available = Annotated[int, about("Units a pod could have now.", minimum=0)]
_Faulted = Annotated[int, about("Units of faulted cards.", minimum=0)]


class Units(Part, frozen=True, kw_only=True):
    """Units (cards, instances or replicas) by what has become of them."""

    total: _Total
    used: _Used
    reserved: _Reserved
    available: _Available
    faulted: _Faulted


class Capacity(Part, frozen=True, kw_only=True):
    """The units of one resource."""

    name: ResourceName
    total: _Total
    used: _Used
    reserved: _Reserved
    available: _Available
    faulted: _Faulted


class WorstNode(Part, frozen=True, kw_only=True):
    """A node that does not give all it should."""

    name: Annotated[NodeName, about("Name of the node.")]
    cards: Annotated[int, about("Cards of the pool on it that cannot be used.", minimum=0, maximum=64)]
    reason: Annotated[str, about("One word for programs: what is wrong.", maxLength=64)]
    message: Annotated[str | None, about("What is wrong and what to do.", maxLength=256)] = None


class WaitingCards(Part, frozen=True, kw_only=True):
    """Cards that the pool selects and does not have, for one reason."""

    reason: Annotated[str, about("Why they are not in the pool, in one word.", maxLength=64)]
    cards: Annotated[int, about("How many they are.", minimum=1)]


class PoolCards(Part, frozen=True, kw_only=True):
    """The cards that the pool selects, in numbers."""

    selected: Annotated[int, about("Cards that spec.deviceSelector selects, in whichever pool they are.", minimum=0)]
    waiting: Annotated[
        tuple[WaitingCards, ...],
        about("Those of them that are not in the pool, by reason.", keys=("reason",), maxItems=MAX_WAITING),
    ] = ()


class PoolNodes(Part, frozen=True, kw_only=True):
    """The nodes behind the pool, in numbers."""

    total: Annotated[int, about("Nodes with cards of the pool.", minimum=0)]
    ready: Annotated[int, about("Nodes of them that have carried out their orders and work.", minimum=0)]
    worst: Annotated[
        tuple[WorstNode, ...],
        about("The nodes most in need of attention, worst first.", keys=("name",), maxItems=MAX_WORST_NODES),
    ] = ()


class Maintenance(Part, frozen=True, kw_only=True):
    """A change of spec.allocation that is being carried out, or taken back."""

    since: Annotated[datetime, about("When it began.")]
    reason: Annotated[str, about("What changes, such as Exclusive → MIG 1g.18gb.", maxLength=1024)]
    units_in_use: Annotated[int, about("Units that pods hold on nodes that are not done.", minimum=0)]
    nodes_done: Annotated[int, about("Nodes that stand in nobody's way any more.", minimum=0)]
    nodes_total: Annotated[int, about("Nodes with cards of the pool.", minimum=0)]
    deadline: Annotated[datetime, about("When it is overdue. It goes on all the same.")]
    node: Annotated[NodeName | None, about("Node whose turn it is, with the strategy Node.")] = None


class PoolStatus(Part, frozen=True, kw_only=True):
    """What the pool has and how it fares."""

    observed_generation: Annotated[
        int | None, about("Generation of the spec that this status is about.", minimum=0)
    ] = None
    phase: Annotated[PoolPhase | None, about("Where the pool stands.")] = None
    allocation: Annotated[
        Allocation | None,
        about("How cards are divided now. It differs from spec.allocation while that is being changed.", atomic=True),
    ] = None
    units: Annotated[Units | None, about("Units of all the pool's resources together.")] = None
    capacity: Annotated[
        tuple[Capacity, ...], about("Units of each of the pool's resources.", keys=("name",), maxItems=MAX_RESOURCES)
    ] = ()
    cards: Annotated[PoolCards | None, about("Cards that the pool selects, in numbers.", atomic=True)] = None
    nodes: Annotated[PoolNodes | None, about("Nodes behind the pool, in numbers.")] = None
    maintenance: Annotated[
        Maintenance | None, about("Present while cards are being divided anew: how far that is.", atomic=True)
    ] = None
    conditions: Annotated[
        tuple[Condition, ...], about("Why the pool is in its phase.", keys=("type",), maxItems=16)
    ] = ()


class GPUPool(Object, frozen=True, kw_only=True):
    """A named set of GPUs with rules for who may use them. Pods ask for gpu.deckhouse.io/<pool> in resources.limits."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version=VERSION, kind="GPUPool", plural="gpupools", namespaced=False
    )
    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"size(self.metadata.name) <= 63 && self.metadata.name.matches('{DNS_LABEL}')",
            "the pool's name becomes part of a resource name: use at most 63 lower-case letters, digits and '-'",
        ),
        Rule(
            "!has(self.spec.allocation.mig) || !has(self.spec.allocation.mig.layout) || "
            f"self.spec.allocation.mig.layout.all(part, size({_LAST_PART}) + 1 + size(part.profile) <= 63)",
            "the resources of a mixed layout are called <resource.name>.<profile>, with at most 63 characters "
            "after '/': shorten the pool's name or resource.name",
        ),
    )

    spec: Annotated[PoolSpec, about("Which cards, for whom, and how they are handed out.")]
    status: Annotated[PoolStatus, about("What the pool has and how it fares.")] = PoolStatus()

    @property
    def resource_name(self) -> str:
        """The extended resource of the pool, or the stem of several with a mixed layout."""
        named = self.spec.resource.name if self.spec.resource else None
        return named or f"{GROUP}/{self.name}"

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Every extended resource of the pool: those of its spec, and those it offers until that is carried out."""
        now = self.status.allocation
        if now is None or (now.mig is None and self.spec.allocation.mig is None):
            return self.names_with(self.spec.allocation)
        return tuple(dict.fromkeys((*self.names_with(self.spec.allocation), *self.names_with(now))))

    @property
    def allocation(self) -> Allocation:
        """How its cards are divided now."""
        return self.status.allocation or self.spec.allocation.canonical

    def names_with(self, allocation: Allocation) -> tuple[str, ...]:
        """The extended resources that the pool offers under this allocation."""
        if allocation.mig is None or not allocation.mig.layout:
            return (self.resource_name,)
        return tuple(f"{self.resource_name}.{resource_suffix(profile)}" for profile in allocation.profiles)


DEFINITION: Final = Definition(
    kind=GPUPool,
    short_names=("gpool", "gp"),
    categories=("gpus",),
    columns=(
        Column("Phase", ".status.phase", description="Pending, Ready, Maintenance, Misconfigured or Deleting"),
        Column("Mode", ".spec.allocation.mode", description="Exclusive, MIG or TimeSlice"),
        Column("Total", ".status.units.total", "integer", "Units of all resources together"),
        Column("Used", ".status.units.used", "integer", "Units held by pods"),
        Column("Available", ".status.units.available", "integer", "Units a pod could have now"),
        Column("Faulted", ".status.units.faulted", "integer", "Units of faulted cards"),
        Column("Nodes", ".status.nodes.total", "integer", "Nodes with cards of the pool"),
        Column("Reserved", ".status.units.reserved", "integer", "Units promised to pods", priority=1),
        Column("Resource", ".status.capacity[0].name", description="Resource that pods ask for", priority=1),
        AGE,
    ),
    selectable=(".spec.allocation.mode", ".spec.backend", ".status.phase"),
)
