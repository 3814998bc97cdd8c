"""The kinds as the agent of a real node sees them: its own Node, and the pods on it."""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.agent.views import PodSpec, PodStatus
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateSpec, Plugin, Quiesced, Validation
from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.objects import Object, Resource


class LocalNodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str = msgspec.field(name="bootID", default="")
    container_runtime_version: str = ""


class LocalNodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    allocatable: dict[str, str] = {}
    node_info: LocalNodeInfo = LocalNodeInfo()


class LocalNode(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    status: LocalNodeStatus = LocalNodeStatus()


class LocalPodStatus(PodStatus, frozen=True):
    reason: str = ""


class LocalPod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: LocalPodStatus = LocalPodStatus()


class NodeStateStatus(Part, frozen=True, kw_only=True):
    plugin: Plugin | None = None
    validation: Validation | None = None
    quiesced: Quiesced | None = None


class NodeState(Object, frozen=True, kw_only=True):
    """A GPUNodeState without what only controllers read."""

    resource: ClassVar[Resource] = GPUNodeState.resource

    spec: NodeStateSpec = NodeStateSpec()
    status: NodeStateStatus = NodeStateStatus()


class NodeShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a GPUNodeState's status that is the agent's."""

    plugin: Plugin | UnsetType = UNSET
    validation: Validation | UnsetType = UNSET
    quiesced: Quiesced | UnsetType = UNSET


class NodeAnswer(msgspec.Struct, frozen=True):
    status: NodeShare
