"""A Node as our controllers look at it: its labels, whether pods may come to it, and what runs containers there.

One view for all of them, so that one process watches Nodes once. Of the status, which changes all the time, only what
a controller decides by is kept.
"""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube.objects import Object, Resource

KEPT_RESOURCES: Final = frozenset({"cpu", "memory"})


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    container_runtime_version: str = ""
    kernel_version: str = ""


class NodeFlag(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A condition of a Node, without the times that each heartbeat changes."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    node_info: NodeInfo = NodeInfo()
    conditions: tuple[NodeFlag, ...] = ()
    allocatable: dict[str, str] = {}
    """Only those in `KEPT_RESOURCES`: the units of device plugins change all the time."""

    def __post_init__(self) -> None:
        kept = {name: quantity for name, quantity in self.allocatable.items() if name in KEPT_RESOURCES}
        msgspec.structs.force_setattr(self, "allocatable", kept)


class Node(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is true."""
        return any(flag.type == "Ready" and flag.status == "True" for flag in self.status.conditions)
