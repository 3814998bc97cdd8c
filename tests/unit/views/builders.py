"""Small fleets for tests of views: a card is a name and what differs from a healthy one in the pool training."""

from datetime import UTC, datetime, timedelta

from gpu_control_plane.api.access import Access
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
from gpu_control_plane.api.gpunodestate import Driver, GPUNodeState, NodeDevice, NodeStateStatus, Plugin
from gpu_control_plane.api.gpupool import Capacity, GPUPool, PoolPhase, PoolSpec, PoolStatus, Units
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node, NodeFlag, NodeSpec, NodeStatus
from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel
from gpu_control_plane.api.pod import Container, ContainerResources, PodStatus, WaitingPod, WaitingPodSpec
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.kube.objects import Condition, Object, ObjectMeta
from gpu_control_plane.views.fleet import Fleet, Missing

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


def pool(name: str = "training", *, phase: PoolPhase = PoolPhase.READY, **units: int) -> GPUPool:
    """A pool with these units, which admits every namespace."""
    counts = {"total": 0, "used": 0, "reserved": 0, "available": 0, "faulted": 0} | units
    return GPUPool(
        metadata=ObjectMeta(name=name, creation_timestamp=NOW),
        spec=PoolSpec(access=Access(namespace_selector=LabelSelector())),
        status=PoolStatus(
            phase=phase,
            units=Units(**counts),
            capacity=(Capacity(name=f"gpu.deckhouse.io/{name}", **counts),),
        ),
    )


def state(
    name: str = "h200-1", *, ready: str = "True", reason: str = "Ready", used: int = 0, free: int = 0, cards: int = 8
) -> GPUNodeState:
    condition = Condition(type="ReadyForPooling", status=ready, reason=reason, message="", last_transition_time=NOW)
    return GPUNodeState(
        metadata=ObjectMeta(name=name, creation_timestamp=NOW),
        status=NodeStateStatus(
            device_count=cards,
            devices=tuple(
                NodeDevice(inventory_id=f"{name}-{n}", pci_address=f"0000:{n:02x}:00.0", product="NVIDIA H200")
                for n in range(cards)
            ),
            driver=Driver(version="580.159.04", cuda_version="13.0"),
            plugin=Plugin(observed_generation=1, used=used, free=free),
            conditions=(condition,),
        ),
    )


def node(name: str = "h200-1", *, ready: bool = True, cordoned: bool = False, **upgrade: str) -> Node:
    """A Node; `upgrade` has its upgrade's state, and annotations by the name of the member."""
    labels = {str(NodeLabel.UPGRADE_STATE): upgrade.pop("state")} if "state" in upgrade else {}
    if upgrade.pop("skipped", ""):
        labels[str(NodeLabel.UPGRADE_SKIP)] = "true"
    return Node(
        metadata=ObjectMeta(
            name=name, labels=labels, annotations={NodeAnnotation[key].value: text for key, text in upgrade.items()}
        ),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(conditions=(NodeFlag(type="Ready", status="True" if ready else "False"),)),
    )


def waiting_pod(name: str, resource: str = "gpu.deckhouse.io/training", units: int = 1) -> WaitingPod:
    asked = ContainerResources(limits={resource: str(units)})
    return WaitingPod(
        metadata=ObjectMeta(name=name, namespace="team-a", uid=name, creation_timestamp=NOW - timedelta(minutes=14)),
        spec=WaitingPodSpec(containers=(Container(name="main", resources=asked),)),
        status=PodStatus(phase="Pending"),
    )


def fleet(*objects: Object, missing: tuple[Missing, ...] = ()) -> Fleet:
    """A fleet of these objects."""

    def of[T: Object](kind: type[T]) -> dict[str, T]:
        return {each.name: each for each in objects if isinstance(each, kind)}

    return Fleet(
        cards=of(GPUDevice),
        states=of(GPUNodeState),
        pools=of(GPUPool),
        nodes=of(Node),
        waiting=[each for each in objects if isinstance(each, WaitingPod)],
        missing=missing,
    )
