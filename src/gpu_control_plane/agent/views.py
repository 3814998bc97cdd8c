"""The kinds as the agent reads them, trimmed to the fields it uses, and the fields of them that it owns.

The simulated fleet holds every node, card and pod of a cluster in memory, so nothing is kept that is not read.
"""

from typing import ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.api.gpudevice import BurnIn, DeviceSpec, GPUDevice, Telemetry, User
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateSpec, Plugin, Quiesced, Validation
from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.objects import Condition, Object, ObjectMeta, Resource

MANAGER: Final = "gpu-agent"

UNEXPECTED_ADMISSION: Final = "UnexpectedAdmissionError"
"""The kubelet's reason when a pod was bound to a node that cannot give it its devices."""


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str = msgspec.field(name="bootID", default="")
    container_runtime_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    node_info: NodeInfo = NodeInfo()


class NodeView(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    status: NodeStatus = NodeStatus()


class Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}


class PodContainer(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resources: Resources = Resources()
    restart_policy: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()


class PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    reason: str = ""


class PodView(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class KnownHardware(Part, frozen=True, kw_only=True):
    uuid: str | None = None


class DeviceStatus(Part, frozen=True, kw_only=True):
    hardware: KnownHardware | None = None
    used_by: tuple[User, ...] = ()
    telemetry: Telemetry | None = None
    burn_in: BurnIn | None = None
    conditions: tuple[Condition, ...] = ()


class DeviceView(Object, frozen=True, kw_only=True):
    """A GPUDevice."""

    resource: ClassVar[Resource] = GPUDevice.resource

    spec: DeviceSpec
    status: DeviceStatus = DeviceStatus()


class NodeStateStatus(Part, frozen=True, kw_only=True):
    plugin: Plugin | None = None
    validation: Validation | None = None
    quiesced: Quiesced | None = None


class NodeStateView(Object, frozen=True, kw_only=True):
    """A GPUNodeState: the node's orders, and what the agent last answered."""

    resource: ClassVar[Resource] = GPUNodeState.resource

    spec: NodeStateSpec = NodeStateSpec()
    status: NodeStateStatus = NodeStateStatus()


class _OwnDeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    used_by: tuple[User, ...] | UnsetType
    telemetry: Telemetry
    burn_in: BurnIn | UnsetType
    conditions: tuple[Condition, ...]


class DeviceApplyConfiguration(msgspec.Struct, frozen=True):
    """The fields of a GPUDevice that the agent owns."""

    status: _OwnDeviceStatus


def device_apply_configuration(
    used_by: tuple[User, ...], telemetry: Telemetry, *conditions: Condition, burn_in: BurnIn | None = None
) -> DeviceApplyConfiguration:
    return DeviceApplyConfiguration(_OwnDeviceStatus(used_by or UNSET, telemetry, burn_in or UNSET, conditions))


class _OwnNodeStateStatus(msgspec.Struct, frozen=True):
    plugin: Plugin | UnsetType
    validation: Validation | UnsetType
    quiesced: Quiesced | UnsetType


class NodeStateApplyConfiguration(msgspec.Struct, frozen=True):
    """The fields of a GPUNodeState that the agent owns."""

    status: _OwnNodeStateStatus


def node_state_apply_configuration(
    plugin: Plugin | UnsetType = UNSET,
    validation: Validation | UnsetType = UNSET,
    quiesced: Quiesced | UnsetType = UNSET,
) -> NodeStateApplyConfiguration:
    return NodeStateApplyConfiguration(_OwnNodeStateStatus(plugin, validation, quiesced))


def is_relevant(old: Object | None, new: Object | None) -> bool:
    """Whether a field that the agent reads has changed; heartbeats and the fields of others have not."""
    if old is None or new is None:
        return True
    return any(getattr(old, part, None) != getattr(new, part, None) for part in ("spec", "status")) or (
        _read_metadata(old.metadata) != _read_metadata(new.metadata)
    )


def _read_metadata(metadata: ObjectMeta) -> tuple[object, ...]:
    return metadata.annotations, metadata.labels, metadata.generation, metadata.uid, metadata.deletion_timestamp
