"""Small fleets for tests of views: a card is a name and what differs from a healthy one in the pool training."""

from datetime import UTC, datetime

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
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.kube.objects import ObjectMeta

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def card(
    node: str = "h200-1",
    slot: int = 0x18,
    *,
    state: DeviceState | None = DeviceState.ASSIGNED,
    pool: str | None = "training",
    pods: tuple[str, ...] = (),
    utilisation: int | None = None,
    pending: str | None = None,
    product: str = "NVIDIA H200",
    ignored: bool = False,
    created: datetime = NOW,
) -> GPUDevice:
    """A card; `pods` are `namespace/name` of those that hold a unit of it each."""
    address = f"0000:{slot:02x}:00.0"
    users = tuple(
        User(
            namespace=pod.split("/")[0],
            pod=pod.split("/")[1],
            container="main",
            resource=f"gpu.deckhouse.io/{pool}",
            units=1,
        )
        for pod in pods
    )
    return GPUDevice(
        metadata=ObjectMeta(
            name=f"{node}-{address.replace(':', '-').replace('.', '-')}",
            creation_timestamp=created,
            labels={str(Label.NODE): node, str(Label.PRODUCT): product.replace(" ", "-")}
            | ({str(Label.IGNORE): "true"} if ignored else {}),
        ),
        spec=DeviceSpec(node_name=node, pci_address=address),
        status=DeviceStatus(
            state=state,
            pool_ref=PoolRef(name=pool) if pool else None,
            pending_reason=pending,
            hardware=Hardware(
                vendor=Vendor.NVIDIA,
                product=product,
                uuid=f"GPU-{node}-{slot}",
                memory_mib=144384,
                pci=PCI(vendor="10de", device="2335", class_="0302", address=address),
            ),
            used_by=users,
            telemetry=Telemetry(utilisation=utilisation, temperature=71, power=640, memory_used=110_000, at=NOW)
            if utilisation is not None
            else None,
        ),
    )
