"""NVIDIADrivers and nodes for them."""

from typing import Any

import msgspec

from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia import NVIDIADriverSpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.drivers.owner import ParsedDriver
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec, from_driver
from unit.api.nvidia.stock import stock_driver

NAMESPACE = "gpu-operator"
KERNEL = "6.8.0-60-generic"


def node(name: str, *, owner: str = "", system: str = "ubuntu 24.04", **more: Any) -> Node:
    """A GPU node. `more` are `kernel`, `ostree`, `runtime` and `labels`."""
    os_id, _, version = system.partition(" ")
    facts = {
        NodeLabel.PRESENT: "true",
        "nvidia.com/gpu.deploy.driver": "true",
        NodeLabel.DRIVER_OWNER: owner,
        NodeLabel.OS_ID: os_id,
        NodeLabel.OS_VERSION: version,
        NodeLabel.OS_MAJOR: version.partition(".")[0],
        NodeLabel.KERNEL: more.get("kernel", KERNEL),
        NodeLabel.OSTREE: more.get("ostree", ""),
        **more.get("labels", {}),
    }
    return Node(
        metadata=ObjectMeta(name=name, labels={str(key): value for key, value in facts.items() if value}),
        status=NodeStatus(node_info=NodeInfo(container_runtime_version=more.get("runtime", "containerd://2.0"))),
    )


def driver(name: str, *, deleting: bool = False, **spec: Any) -> ParsedDriver:
    """An NVIDIADriver like the chart's, with changes; not the default one unless it says so."""
    held = {**stock_driver()["spec"], "default": False, **spec}
    return ParsedDriver(
        name=name, uid=f"uid-{name}", generation=1, spec=msgspec.convert(held, NVIDIADriverSpec), deleting=deleting
    )


def wish_of(**spec: Any) -> DriverSpec:
    """What an NVIDIADriver like the chart's wants, with changes."""
    return from_driver(msgspec.convert({**stock_driver()["spec"], **spec}, NVIDIADriverSpec))
