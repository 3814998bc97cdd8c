"""The components of a node's agent, and how it writes to the API server."""

from collections.abc import Callable

import msgspec

from gpu_control_plane.agent.kubelet.plugins import DevicePlugins
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.node.allocator import Allocator
from gpu_control_plane.agent.node.burnin_runner import BurnInRunner
from gpu_control_plane.agent.node.cdi_spec import CDISpecWriter
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.node.hold_file import HoldFile
from gpu_control_plane.agent.node.node_lock import NodeLock
from gpu_control_plane.agent.node.pod_cgroups import PodCgroups
from gpu_control_plane.agent.node.validation_runner import ValidationRunner
from gpu_control_plane.agent.units import PodDevices
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.events import EventRecorder


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent works with on the node."""

    lock: NodeLock
    watch: HardwareWatch
    plugins: DevicePlugins
    pod_resources: PodResources
    allocator: Allocator
    checkpoint: Callable[[], tuple[PodDevices, ...] | None]
    """Reads the kubelet's checkpoint."""
    pod_cgroups: PodCgroups
    hold_file: HoldFile
    cdi_spec: CDISpecWriter
    validation: ValidationRunner
    burn_in: BurnInRunner


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent writes to the API server."""

    client: Client
    applier: Applier
    events: EventRecorder
