"""Everything a decision about the cards of one node depends on."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.rules.pool_validation import PoolFault


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    labels: Mapping[str, str] | None
    """Labels of the Node; None while there is no such Node."""
    state: GPUNodeState | None
    devices: tuple[GPUDevice, ...]
    pools: Mapping[str, GPUPool]
    faults: Mapping[str, PoolFault]
    report_observed: bool = True
    """Whether inventory has taken the latest report of the node into its status."""
    now: datetime


def claim_of(device: GPUDevice) -> str | None:
    """The pool that holds the card."""
    return device.status.pool_ref.name if device.status.pool_ref else None
