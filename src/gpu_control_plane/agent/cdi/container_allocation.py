"""What Allocate answers for the units of a container, by each way of injection."""

from collections.abc import Iterable, Sequence

from gpu_control_plane.agent.cdi.edits import READ_WRITE, Edits, merged
from gpu_control_plane.agent.cdi.injectable import InjectableDevice
from gpu_control_plane.agent.cdi.spec import card_name, instance_name, qualified_name
from gpu_control_plane.agent.kubelet.interface import ContainerAllocation, DeviceNode, Mount
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.units import card_of


def device_name(unit_id: str) -> str:
    """The CDI device of a unit: the replicas of a card share one."""
    instance = parse_unit_id(unit_id)
    if instance is not None:
        return instance_name(instance.card, instance.profile, instance.start)
    return card_name(card_of(unit_id))


def cdi_allocation(names: Iterable[str]) -> ContainerAllocation:
    """The runtime looks the names up in the CDI spec, which must have been written before."""
    return ContainerAllocation(cdi_devices=tuple(qualified_name(name) for name in dict.fromkeys(names)))


def kubelet_allocation(chosen: Sequence[InjectableDevice], common: Edits) -> ContainerAllocation:
    """For runtimes without CDI: the same edits, as far as the kubelet can pass them on.

    It passes on no hooks, so `common` must have none, and no additional groups: a program that is not root cannot open
    device files that are reserved for a group, unless its pod asks for that group.
    """
    edits = merged([common, *(each.device.container_edits for each in chosen)])
    if edits.hooks:
        raise ValueError("The kubelet cannot pass hooks on to the runtime: ask for container edits without hooks.")
    return ContainerAllocation(
        devices=tuple(
            DeviceNode(path=node.path, host_path=node.host_path or node.path, permissions=READ_WRITE)
            for node in edits.device_nodes
        ),
        mounts=tuple(
            Mount(path=mount.container_path, host_path=mount.host_path, read_only="ro" in mount.options)
            for mount in edits.mounts
        ),
        envs=dict(entry.split("=", 1) for entry in edits.env),
    )


def runtime_allocation(chosen: Iterable[InjectableDevice], variable: str) -> ContainerAllocation:
    """For nodes with the vendor's own container runtime: it injects the devices that this variable names."""
    return ContainerAllocation(envs={variable: ",".join(dict.fromkeys(each.uuid for each in chosen))})
