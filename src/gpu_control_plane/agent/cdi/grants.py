"""From chosen units to what a container gets, in each of the ways a runtime may understand."""

from collections.abc import Iterable, Sequence

from gpu_control_plane.agent.cdi.describe import Grantable
from gpu_control_plane.agent.cdi.edits import READ_WRITE, Edits, merged
from gpu_control_plane.agent.cdi.spec import card_name, instance_name, qualified_name
from gpu_control_plane.agent.kubelet.interface import ContainerAllocation, DeviceNode, Mount
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.units import card_of


def device_name(unit_id: str) -> str:
    """The CDI device behind a unit of the kubelet's: replicas of a card share one."""
    instance = parse_unit_id(unit_id)
    if instance is not None:
        return instance_name(instance.card, instance.profile, instance.start)
    return card_name(card_of(unit_id))


def by_cdi(names: Iterable[str]) -> ContainerAllocation:
    """The runtime looks the devices up in the specification, which must have been written before."""
    return ContainerAllocation(cdi_devices=tuple(qualified_name(name) for name in dict.fromkeys(names)))


def by_kubelet(chosen: Sequence[Grantable], common: Edits) -> ContainerAllocation:
    """For runtimes without CDI: the same edits, as far as the kubelet can carry them.

    It carries neither hooks, so `common` must do without them, nor additional groups: a program that is not root
    cannot open device files reserved for a group unless its pod asks for that group.
    """
    edits = merged([common, *(grantable.device.container_edits for grantable in chosen)])
    if edits.hooks:
        raise ValueError("The kubelet cannot carry hooks to the runtime: describe the driver without a hook program.")
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


def by_runtime(chosen: Iterable[Grantable], variable: str) -> ContainerAllocation:
    """For nodes whose runtime is the vendor's own: it brings in whatever this variable names."""
    return ContainerAllocation(envs={variable: ",".join(dict.fromkeys(grantable.uuid for grantable in chosen))})
