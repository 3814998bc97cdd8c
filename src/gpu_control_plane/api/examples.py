"""Objects as a cluster of H200 machines would show them: for the reference page, the benchmarks and the tests.

Sizes and values follow a real card's readings, so what is measured on these objects holds for real ones.
"""

import uuid
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpu_control_plane.api.access import Access, Quota
from gpu_control_plane.api.allocation import MIG, Allocation, Mode, PoolAllocation, ProfileCount, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector, MemoryRange
from gpu_control_plane.api.gpuapproval import ApprovalSpec, GPUApproval
from gpu_control_plane.api.gpudevice import (
    PCI,
    Change,
    DeviceSpec,
    DeviceState,
    DeviceStatus,
    GPUDevice,
    Hardware,
    MIGCapability,
    MIGProfile,
    Telemetry,
    User,
    Vendor,
)
from gpu_control_plane.api.gpunodestate import (
    AgentFunctions,
    AssignedCard,
    Assignment,
    Driver,
    DriverSource,
    GPUNodeState,
    Injection,
    Monitoring,
    MonitoringSource,
    NodeDevice,
    NodePools,
    NodeStateSpec,
    NodeStateStatus,
    ObservedReport,
    OfferedResource,
    Plugin,
    PluginResource,
    StepResult,
    Toolkit,
    Validation,
    ValidationStep,
)
from gpu_control_plane.api.gpupool import (
    Capacity,
    GPUPool,
    MaintenanceStrategy,
    PoolMaintenance,
    PoolNodes,
    PoolPhase,
    PoolResource,
    PoolSpec,
    PoolStatus,
    Units,
    WorstNode,
)
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.names import GROUP, Annotation, DeviceCondition, NodeCondition, PoolCondition, Reason
from gpu_control_plane.api.scheduling import Scheduling, Taint, TaintEffect
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.kube.objects import Condition, Object, ObjectMeta

NOON: Final = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)

_BUSES: Final = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
_PROFILES: Final = (
    ("1g.18gb", 7, 16384, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("1g.18gb+me", 1, 16384, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("1g.35gb", 4, 33280, 2, (0, 2, 4, 6)),
    ("2g.35gb", 3, 33280, 2, (0, 2, 4)),
    ("3g.71gb", 2, 71424, 4, (0, 4)),
    ("4g.71gb", 1, 71424, 4, (0,)),
    ("7g.141gb", 1, 143360, 8, (0,)),
)


def manifest(thing: Object) -> dict[str, Any]:
    """An object as it stands in a file: with its apiVersion and kind."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(thing))
    return {"apiVersion": thing.resource.api_version, "kind": thing.resource.kind, **fields}


def written(pool: GPUPool) -> GPUPool:
    """A pool as a person writes it: without a status."""
    return msgspec.structs.replace(pool, status=PoolStatus())


def pci_address(index: int) -> str:
    """Where card `index` of an eight-card machine sits; further cards follow in domains of their own."""
    domain, place = divmod(index, len(_BUSES))
    return f"{domain:04x}:{_BUSES[place]:02x}:00.0"


def device(
    node: str = "worker-3", index: int = 4, *, pool: str | None = "training", cards: int = 8, used: bool = True
) -> GPUDevice:
    """One H200 of a machine with eight, in use by a pod of its pool: about 2 KB of JSON."""
    address = pci_address(index)
    approval: dict[str, str] = {Annotation.ASSIGNMENT: pool} if pool else {}
    return GPUDevice(
        metadata=ObjectMeta(name=inventory_id(node, address), annotations=approval),
        spec=DeviceSpec(node_name=node, pci_address=address),
        status=DeviceStatus(
            state=DeviceState.ASSIGNED if pool else DeviceState.UNASSIGNED,
            pool_ref=PoolRef(name=pool) if pool else None,
            hardware=h200(node, index, cards),
            used_by=(_user(pool, index),) if pool and used else (),
            telemetry=Telemetry(temperature=31, power=76, utilisation=0, memory_used=0, ecc_errors=0, at=NOON),
            history=_history(pool),
            conditions=(_holds(DeviceCondition.HEALTHY, "ProbePassed", "The card answers and shows no fault."),),
        ),
    )


def approval(node: str = "worker-3", index: int = 4, pool: str = "training") -> GPUApproval:
    """The approval of an H200 whose machine has not joined yet."""
    address, card = pci_address(index), h200(node, index)
    return GPUApproval(
        metadata=ObjectMeta(name=inventory_id(node, address)),
        spec=ApprovalSpec(
            node_name=node,
            pci_address=address,
            uuid=card.uuid or "",
            product=card.product,
            pool=pool,
            reason="restored from the backup of 2026-05-04",
        ),
    )


def h200(node: str, index: int, cards: int = 8) -> Hardware:
    """The hardware of an H200."""
    address = pci_address(index)
    return Hardware(
        vendor=Vendor.NVIDIA,
        product="NVIDIA H200",
        uuid=_uuid(node, address),
        pci=PCI(vendor="10de", device="2335", class_="0302", address=address),
        memory_mib=143771,
        compute_capability="9.0",
        architecture="Hopper",
        numa_node=index % len(_BUSES) * 2 // len(_BUSES),
        nvlink_peers=tuple(pci_address(other) for other in range(cards) if other != index),
        mig=MIGCapability.of(
            (
                MIGProfile(name=name, count=count, memory_mib=memory, slices=slices, starts=starts)
                for name, count, memory, slices, starts in _PROFILES
            ),
            enabled=False,
        ),
    )


def node_state(node: str = "worker-3", cards: int = 8, *, pool: str | None = "training") -> GPUNodeState:
    """A machine whose cards are all in one pool, everything on it in order."""
    ids = [inventory_id(node, pci_address(index)) for index in range(cards)]
    resource = f"{GROUP}/{pool}"
    steps = ("driver", "toolkit", "cuda", "plugin")
    return GPUNodeState(
        metadata=ObjectMeta(name=node),
        spec=NodeStateSpec(
            assignments=tuple(
                Assignment(
                    inventory_id=card,
                    pool=pool,
                    resources=(OfferedResource(name=resource, units=1),),
                    allocation=Allocation(mode=Mode.EXCLUSIVE),
                )
                for card in ids
                if pool
            )
        ),
        status=NodeStateStatus(
            device_count=cards,
            devices=tuple(
                NodeDevice(
                    inventory_id=card,
                    pci_address=pci_address(index),
                    uuid=_uuid(node, pci_address(index)),
                    product="NVIDIA H200",
                )
                for index, card in enumerate(ids)
            ),
            observed_report=ObservedReport(uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, node)), generation=3),
            driver=Driver(version="580.159.04", cuda_version="13.0", source=DriverSource.HOST),
            toolkit=Toolkit(injection=Injection.CDI, runtime="containerd://2.4.2"),
            monitoring=Monitoring(source=MonitoringSource.AGENT),
            agent=AgentFunctions(labels=True, checks=True, burn_in=False, exporter=True),
            pools=NodePools(assigned=tuple(AssignedCard(inventory_id=card, pool=pool) for card in ids if pool)),
            validation=Validation(
                driver_version="580.159.04",
                steps=tuple(ValidationStep(name=step, result=StepResult.PASSED, at=NOON) for step in steps),
            ),
            plugin=Plugin(
                observed_generation=1,
                resources=(PluginResource(name=resource, units=cards, healthy=cards, inventory_ids=tuple(ids)),)
                if pool
                else (),
            ),
            conditions=(
                _holds(NodeCondition.INVENTORY_COMPLETE, Reason.INVENTORY_SYNCED, f"All {cards} cards are known."),
                _holds(NodeCondition.READY_FOR_POOLING, "Ready", "The cards of the node may join pools."),
            ),
        ),
    )


def pool(name: str = "training", spec: PoolSpec | None = None) -> GPUPool:
    """A pool of whole H200s for two teams, with one node that needs attention."""
    spec = spec or training()
    return GPUPool(
        metadata=ObjectMeta(name=name),
        spec=spec,
        status=PoolStatus(
            observed_generation=1,
            phase=PoolPhase.READY,
            allocation=spec.allocation.canonical,
            units=Units(total=32, used=20, reserved=1, available=10, faulted=1),
            capacity=(Capacity(name=f"{GROUP}/{name}", total=32, used=20, reserved=1, available=10, faulted=1),),
            nodes=PoolNodes(
                total=4,
                ready=3,
                worst=(
                    WorstNode(
                        name="worker-7",
                        cards=1,
                        reason="DeviceFaulted",
                        message="XID 79: the card fell off the bus. Restart the node.",
                    ),
                ),
            ),
            conditions=(_holds(PoolCondition.READY, "Ready", "Pods can ask for the resource."),),
        ),
    )


def training() -> PoolSpec:
    """Whole cards of one model, for teams that are named."""
    return PoolSpec(
        device_selector=DeviceSelector(
            include=DeviceCriteria(
                vendors=(Vendor.NVIDIA,), products=("NVIDIA H200*",), memory_mib=MemoryRange(min=140_000)
            )
        ),
        access=Access(namespaces=("team-vision", "team-speech")),
        quotas=(Quota(namespace="team-speech", units=8),),
    )


def mixed_layout() -> PoolSpec:
    """Cards cut into instances of two sizes, each a resource of its own."""
    layout = (ProfileCount(profile="3g.71gb", count=1), ProfileCount(profile="1g.18gb", count=3))
    return PoolSpec(
        resource=PoolResource(name="gpu.example.com/notebooks"),
        allocation=PoolAllocation(mode=Mode.MIG, mig=MIG(layout=layout)),
    )


def time_slices() -> PoolSpec:
    """Cards on which four pods take turns. A change of that goes node by node."""
    return PoolSpec(
        allocation=PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4)),
        scheduling=Scheduling(taints=(Taint(key="example.com/gpu", effect=TaintEffect.NO_SCHEDULE),)),
        maintenance=PoolMaintenance(strategy=MaintenanceStrategy.NODE, deadline="12h"),
    )


def _history(pool: str | None) -> tuple[Change, ...]:
    detected = Change(what="Detected", who="inventory", when=NOON)
    if pool is None:
        return (detected,)
    assigned = Change(what=f"Assigned to {pool}", who="pools", when=NOON, why="Approved by alice@example.com.")
    return (assigned, detected)


def _user(pool: str, index: int) -> User:
    return User(
        namespace="team-vision", pod=f"pretrain-{index}", container="trainer", resource=f"{GROUP}/{pool}", units=1
    )


def _holds(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message, last_transition_time=NOON)


def _uuid(node: str, address: str) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{address}')}"
