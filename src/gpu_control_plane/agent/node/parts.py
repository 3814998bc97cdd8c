"""What the agent of a node is made of, and how it writes to the cluster."""

import msgspec

from gpu_control_plane.agent.kubelet.plugins import Plugins
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.node.burning import Burner
from gpu_control_plane.agent.node.cutting import Cutter
from gpu_control_plane.agent.node.desk import Desk
from gpu_control_plane.agent.node.inspection import Inspector
from gpu_control_plane.agent.node.wardrobe import Wardrobe
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.events import EventRecorder


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent works with."""

    watch: HardwareWatch
    plugins: Plugins
    books: PodResources
    desk: Desk
    cutter: Cutter
    wardrobe: Wardrobe
    inspector: Inspector
    burner: Burner


class Hands(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent writes to the cluster."""

    client: Client
    apply: Applier
    events: EventRecorder
