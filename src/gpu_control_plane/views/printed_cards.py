"""Cards as far as a table shows them, made of the columns that the API server prints: 40,000 of them are 7 MB that way
instead of 104.

They are GPUDevices like any other, so that what is said of them is decided by the same functions. What has no column is
absent, and of several pods on a card only the first is there.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import (
    PCI,
    DeviceSpec,
    DeviceState,
    DeviceStatus,
    GPUDevice,
    Hardware,
    Telemetry,
    User,
    Vendor,
)
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.kube.client import Printed
from gpu_control_plane.kube.objects import ObjectMeta

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
"""When a reading was taken, of which only the number is printed."""
_COLUMNS: Final = ("Name", "Node", "Product", "State", "Pool", "Reason", "Address", "Namespace", "Pod", "Busy")


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """The cells of `_COLUMNS`."""

    name: str
    node: str
    product: str | None
    state: DeviceState | None
    pool: str | None
    reason: str | None
    address: str
    namespace: str | None
    pod: str | None
    busy: int | None


def cards_of(printed: Printed) -> list[GPUDevice] | None:
    """The cards; None where the CRD of another release prints other columns."""
    places = {column.name: number for number, column in enumerate(printed.column_definitions)}
    if not places.keys() >= set(_COLUMNS):
        return None
    order = [places[name] for name in _COLUMNS]
    return [_card(msgspec.convert([row.cells[place] for place in order], _Row)) for row in printed.rows]


def _card(row: _Row) -> GPUDevice:
    pci = PCI(vendor="", device="", class_="", address=row.address)
    return GPUDevice(
        metadata=ObjectMeta(name=row.name),
        spec=DeviceSpec(node_name=row.node, pci_address=row.address),
        status=DeviceStatus(
            state=row.state,
            pool_ref=PoolRef(name=row.pool) if row.pool else None,
            pending_reason=row.reason,
            hardware=Hardware(vendor=Vendor(""), product=row.product, pci=pci) if row.product else None,
            used_by=(User(namespace=row.namespace, pod=row.pod, container="", resource="", units=1),)
            if row.namespace and row.pod
            else (),
            telemetry=Telemetry(utilisation=row.busy, at=_NEVER) if row.busy is not None else None,
        ),
    )
