"""Everything a decision about the cards of one node depends on, and how long pools wait."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.gpudevice import GPUDevice, Reservation
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.fields import about
from gpu_control_plane.rules.pool_validation import PoolFault


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What pools are given. Their waiting times are in docs/settings.md."""

    namespace: str = DEFAULT_NAMESPACE
    """Where agents publish their reports, and where the index of who may use which pool is."""
    status_interval: Annotated[
        timedelta, about("The status of a pool is written at most once in this time, however many cards change.")
    ] = timedelta(seconds=1)
    selection_interval: Annotated[
        timedelta,
        about("Numbers of cards that a pool selects are written at most once in this time if nothing else changes."),
    ] = timedelta(seconds=5)
    pending_pod_hint_after: Annotated[
        timedelta,
        about(
            "How long a Pod is unschedulable before an Event says why it gets no card: by then the pool's status shows "
            "who has the cards."
        ),
    ] = timedelta(seconds=3)
    reservation_shown_after: Annotated[
        timedelta,
        about(
            "How long a Pod has waited before the units that are reserved for it are shown on cards: most start within "
            "seconds, and would only cost writes."
        ),
    ] = timedelta(seconds=30)
    pending_pod_interval: Annotated[
        timedelta,
        about(
            "A Pod that waits for a card is looked at anew at most once in this time. An Event follows when the cause "
            "is another one; the more often that happens to a Pod, the later, up to five minutes."
        ),
    ] = timedelta(seconds=10)
    pending_pod_repeat_after: Annotated[
        timedelta,
        about(
            "A Pod that still waits for the same reason gets its Event anew: API servers forget Events after an hour."
        ),
    ] = timedelta(minutes=45)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    labels: Mapping[str, str] | None
    """Labels of the Node; None while there is no such Node."""
    state: GPUNodeState | None
    devices: tuple[GPUDevice, ...]
    pools: Mapping[str, GPUPool]
    faults: Mapping[str, PoolFault]
    reserved: Mapping[str, Reservation] = {}
    """What is promised to pods and shown on cards, by card."""
    report_observed: bool = True
    """Whether inventory has taken the latest report of the node into its status."""
    now: datetime


def claim_of(device: GPUDevice) -> str | None:
    """The pool that holds the card."""
    return device.status.pool_ref.name if device.status.pool_ref else None
