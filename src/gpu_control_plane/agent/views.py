"""The kinds as the agent sees them: the fields it reads, and, apart from them, the fields it owns.

A fleet of simulated nodes holds every card and pod of the cluster in memory, so nothing is kept that nobody reads.
"""

from typing import ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.api.gpudevice import BurnIn, DeviceSpec, GPUDevice, Telemetry, User
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateSpec, Plugin
from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.objects import Condition, Object, ObjectMeta, Resource

MANAGER: Final = "gpu-agent"

ALLOCATED: Final = "simulation.gpu.deckhouse.io/DevicesAllocated"
"""Condition of a Pod on a simulated node: its devices are chosen, so it may start. The message names them."""
UNEXPECTED_ADMISSION: Final = "UnexpectedAdmissionError"
"""The kubelet's reason when a pod was bound to a node that cannot give it its devices."""


class NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    status: NodeStatus = NodeStatus()


class Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}


class Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resources: Resources = Resources()
    restart_policy: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()


class Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class KnownHardware(Part, frozen=True, kw_only=True):
    uuid: str | None = None


class CardStatus(Part, frozen=True, kw_only=True):
    hardware: KnownHardware | None = None
    used_by: tuple[User, ...] = ()
    telemetry: Telemetry | None = None
    burn_in: BurnIn | None = None
    conditions: tuple[Condition, ...] = ()


class Card(Object, frozen=True, kw_only=True):
    """A GPUDevice without what only others read."""

    resource: ClassVar[Resource] = GPUDevice.resource

    spec: DeviceSpec
    status: CardStatus = CardStatus()


class OrdersStatus(Part, frozen=True, kw_only=True):
    plugin: Plugin | None = None


class Orders(Object, frozen=True, kw_only=True):
    """A GPUNodeState without what only others read."""

    resource: ClassVar[Resource] = GPUNodeState.resource

    spec: NodeStateSpec = NodeStateSpec()
    status: OrdersStatus = OrdersStatus()


class CardShare(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a GPUDevice's status that is the agent's."""

    used_by: tuple[User, ...] | UnsetType
    telemetry: Telemetry
    burn_in: BurnIn | UnsetType
    conditions: tuple[Condition, ...]


class CardReport(msgspec.Struct, frozen=True):
    status: CardShare


def card_report(
    used_by: tuple[User, ...], telemetry: Telemetry, *conditions: Condition, burn_in: BurnIn | None = None
) -> CardReport:
    return CardReport(CardShare(used_by or UNSET, telemetry, burn_in or UNSET, conditions))


class OrdersShare(msgspec.Struct, frozen=True):
    """The part of a GPUNodeState's status that is the agent's."""

    plugin: Plugin


class OrdersAnswer(msgspec.Struct, frozen=True):
    status: OrdersShare


def matters(old: Object | None, new: Object | None) -> bool:
    """Whether anything an agent looks at has changed; heartbeats and other writers' fields have not."""
    if old is None or new is None:
        return True
    return any(getattr(old, part, None) != getattr(new, part, None) for part in ("spec", "status")) or (
        _essence(old.metadata) != _essence(new.metadata)
    )


def _essence(metadata: ObjectMeta) -> tuple[object, ...]:
    return metadata.annotations, metadata.labels, metadata.generation, metadata.uid, metadata.deletion_timestamp
