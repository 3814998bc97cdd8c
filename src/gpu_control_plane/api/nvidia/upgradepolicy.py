"""How driver upgrades go through a fleet: the policy of a ClusterPolicy's or an NVIDIADriver's driver.

`paused` and `canary` are ours; a manifest without them means what it means under NVIDIA's operator.
"""

from typing import Annotated

from gpu_control_plane.api.nvidia.fields import Labels, Section
from gpu_control_plane.kube.fields import about

_Seconds = Annotated[int, about(minimum=0, maximum=2**31 - 1)]
_Share = Annotated[
    int | str,
    about(
        "Nodes that may be out of service at a time: a number, or a part of all such as 25%.",
        default=True,
        pattern="^[0-9]+%?$",
        minimum=0,
    ),
]


class PodDeletion(Section, frozen=True, kw_only=True):
    """How pods that use a GPU are made to leave."""

    force: Annotated[bool, about("Also pods that no controller would replace.", default=True)] = False
    timeout_seconds: Annotated[_Seconds, about("Time they have; 0 means no limit.", default=True)] = 300
    delete_empty_dir: Annotated[bool, about("Also pods with an emptyDir, whose data is lost.", default=True)] = False


class WaitForCompletion(Section, frozen=True, kw_only=True):
    """Which pods may finish their work first."""

    pod_selector: Annotated[str, about("Labels of these pods; empty means that no pod is waited for.")] = ""
    timeout_seconds: Annotated[_Seconds, about("Time they have; 0 means no limit.", default=True)] = 0


class Drain(Section, frozen=True, kw_only=True):
    """How a node is emptied when deleting the pods that use a GPU was not enough."""

    enable: Annotated[bool, about("Whether it is done at all.", default=True)] = False
    force: Annotated[bool, about("Also pods that no controller would replace.", default=True)] = False
    pod_selector: Annotated[str, about("Labels of the pods to drain; empty means all.")] = ""
    timeout_seconds: Annotated[_Seconds, about("Time they have; 0 means no limit.", default=True)] = 300
    delete_empty_dir: Annotated[bool, about("Also pods with an emptyDir, whose data is lost.", default=True)] = False


class Canary(Section, frozen=True, kw_only=True):
    """Nodes that go first. The others follow when all of these are done; a failure among them stops the rollout."""

    node_selector: Annotated[
        Labels, about("Labels of the nodes that go first. If no node has them, none is upgraded.")
    ] = {}
    nodes: Annotated[int, about("Without a selector: so many nodes, in the order of their names.", minimum=0)] = 0


class UpgradePolicy(Section, frozen=True, kw_only=True):
    """How driver upgrades go through the fleet."""

    auto_upgrade: Annotated[bool, about("Whether upgrades are done by the operator.", default=True)] = False
    max_parallel_upgrades: Annotated[_Seconds, about("Nodes upgraded at a time; 0 means no limit.", default=True)] = 1
    max_unavailable: _Share = "25%"
    pod_deletion: Annotated[PodDeletion | None, about("How pods that use a GPU are made to leave.")] = None
    wait_for_completion: Annotated[WaitForCompletion | None, about("Which pods may finish first.")] = None
    drain: Annotated[Drain | None, about("How a node is emptied when that was not enough.")] = None
    paused: Annotated[bool, about("No further node begins; nodes under way are finished. Ours.")] = False
    canary: Annotated[Canary | None, about("Nodes that go first. Ours.")] = None


class DriverUpgradePolicy(UpgradePolicy, frozen=True, kw_only=True):
    """How driver upgrades go through the nodes of one NVIDIADriver; on unless switched off."""

    auto_upgrade: Annotated[bool, about("Whether upgrades are done by the operator.", default=True)] = True
