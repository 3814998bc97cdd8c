"""Which deploy labels a node of each workload type has, and what its other labels say of its workload type. Pure.

The sets are computed when the module is imported, so a decision about a node is a lookup.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.names import DEPLOY, TRUE, NodeLabel
from gpu_control_plane.operator.node_facts import DEPLOY_VALIDATOR

_MIG_CAPABLE: Final = NodeLabel.MIG_CAPABLE.value
_PRODUCT: Final = NodeLabel.PRODUCT.value
_VGPU_HOST_DRIVER: Final = NodeLabel.VGPU_HOST_DRIVER.value
_MIG_PRODUCTS: Final = ("h100", "a100", "a30")

MIG_MANAGER: Final = f"{DEPLOY}mig-manager"
AGENT_KEYS: Final = frozenset({f"{DEPLOY}device-plugin", MIG_MANAGER, DEPLOY_VALIDATOR})
"""Deploy labels with the value `agent` on nodes where our agent hands out the cards. Two device plugins would hand out
one card twice, and two MIG managers would undo each other's layouts. The validator for these nodes waits for no device
plugin. The container toolkit stays: without its runtime no pod of the stack that needs cards would start."""


class DeployLabels(msgspec.Struct, frozen=True):
    """The deploy labels of a workload type: those that every such node has, and those that none has.

    The MIG manager's is in neither for containers: there it depends on the card.
    """

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]
    mig: bool


def deploy_labels_of(workload: Workload, mode: SandboxMode) -> DeployLabels:
    return _PLANS[workload, mode is SandboxMode.KATA]


def workload_of(labels: Mapping[str, str], default: Workload, *, sandbox: bool) -> Workload:
    """What the node's cards are for. An unknown value of the label counts as none."""
    if not sandbox:
        return Workload.CONTAINER
    asked = labels.get(NodeLabel.WORKLOAD.value)
    return _WORKLOADS.get(asked or "", _WORKLOADS.get(default, Workload.CONTAINER))


def mig_capable(labels: Mapping[str, str]) -> bool:
    """Whether a MIG manager can partition the node's cards; in a vGPU guest it cannot."""
    if labels.get(_VGPU_HOST_DRIVER):
        return False
    said = labels.get(_MIG_CAPABLE)
    if said is not None:
        return said == TRUE
    product = labels.get(_PRODUCT, "").lower()
    return any(name in product for name in _MIG_PRODUCTS)


_WORKLOADS: Final[dict[str, Workload]] = {workload.value: workload for workload in Workload}
_CONTAINER: Final = (
    *("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter"),
    *("node-status-exporter", "operator-validator", "client"),
)
_PASSTHROUGH: Final = ("sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
_VGPU: Final = (
    *("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client"),
)
_SETS: Final[dict[tuple[Workload, bool], tuple[str, ...]]] = {
    (Workload.CONTAINER, False): _CONTAINER,
    (Workload.CONTAINER, True): _CONTAINER,
    (Workload.VM_PASSTHROUGH, False): ("sandbox-device-plugin", *_PASSTHROUGH),
    (Workload.VM_PASSTHROUGH, True): ("kata-sandbox-device-plugin", *_PASSTHROUGH),
    (Workload.VM_VGPU, False): _VGPU,
    (Workload.VM_VGPU, True): _VGPU,
}

DEPLOY_KEYS: Final = tuple(sorted({f"{DEPLOY}{name}" for names in _SETS.values() for name in names} | {MIG_MANAGER}))
"""Every deploy label that this operator writes. `operands` is set by a person, and other programs may have deploy
labels of their own."""


def _plan(workload: Workload, names: tuple[str, ...]) -> DeployLabels:
    wanted, mig = tuple(f"{DEPLOY}{name}" for name in names), workload is Workload.CONTAINER
    kept = {*wanted, MIG_MANAGER} if mig else {*wanted}
    return DeployLabels(wanted=wanted, unwanted=tuple(key for key in DEPLOY_KEYS if key not in kept), mig=mig)


_PLANS: Final = {(workload, kata): _plan(workload, names) for (workload, kata), names in _SETS.items()}
