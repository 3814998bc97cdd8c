"""Small clusters for backups: nodes with two cards each, decisions about them, and what becomes of a restore."""

from collections.abc import Collection, Iterable

import msgspec

from gpu_control_plane.actions.forecast import with_edits
from gpu_control_plane.api import examples
from gpu_control_plane.api.gpuapproval import ApprovalSpec, GPUApproval
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.node import Node, NodeFlag, NodeStatus
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.backup.collect import Decisions
from gpu_control_plane.backup.restore import Kind, RestorePlan
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.views.fleet import Fleet

POOLS = ("inference", "training")
NODES = ("worker-1", "worker-2")


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has decided about a card."""

    pool: str | None = None
    hold: str | None = None
    ignore: bool = False

    def __bool__(self) -> bool:
        return bool(self.pool or self.hold or self.ignore)


NOTHING = Decided()
type Place = tuple[str, int]
"""A node, and which of its cards."""


def card(place: Place, decided: Decided = NOTHING, uuid: str | None = None) -> GPUDevice:
    """A card that no pool has taken yet."""
    bare = examples.device(*place, pool=None)
    annotations = {
        str(key): value
        for key, value in ((Annotation.ASSIGNMENT, decided.pool), (Annotation.HOLD, decided.hold))
        if value is not None
    }
    labels = {str(Label.IGNORE): "true"} if decided.ignore else {}
    metadata = msgspec.structs.replace(bare.metadata, annotations=annotations, labels=labels, resource_version="1")
    assert bare.status.hardware is not None
    hardware = msgspec.structs.replace(bare.status.hardware, uuid=uuid or uuid_of(place))
    status = msgspec.structs.replace(bare.status, hardware=hardware, history=())
    return msgspec.structs.replace(bare, metadata=metadata, status=status)


def uuid_of(place: Place) -> str:
    return f"GPU-{place[0]}-{place[1]}"


def pool(name: str) -> GPUPool:
    return GPUPool(metadata=ObjectMeta(name=name, resource_version="1"), spec=PoolSpec())


def policy(**spec: object) -> StoredClusterPolicy:
    raw = msgspec.Raw(msgspec.json.encode(spec))
    return StoredClusterPolicy(metadata=ObjectMeta(name="cluster-policy", resource_version="1"), spec=raw)


def approval(name: str, place: Place, decided: Decided, uuid: str | None = None) -> GPUApproval:
    """A GPUApproval as somebody has written it by hand."""
    bare = examples.approval(*place).spec
    spec = msgspec.structs.replace(
        bare, uuid=uuid or uuid_of(place), pool=decided.pool, hold=decided.hold, ignore=decided.ignore
    )
    return GPUApproval(metadata=ObjectMeta(name=name, resource_version="1"), spec=spec)


def cluster(
    cards: Iterable[GPUDevice] = (),
    pools: Iterable[GPUPool] = (),
    approvals: Iterable[GPUApproval] = (),
    ready: Collection[str] = (),
) -> Decisions:
    found = {each.name: each for each in cards}
    nodes = {each.spec.node_name for each in found.values()}
    statuses = {
        name: NodeStatus(conditions=(NodeFlag(type="Ready", status="True" if name in ready else "False"),))
        for name in nodes
    }
    fleet = Fleet(
        cards=found,
        pools={each.name: each for each in pools},
        nodes={name: Node(metadata=ObjectMeta(name=name), status=status) for name, status in statuses.items()},
    )
    return Decisions(fleet=fleet, approvals=tuple(approvals))


def restored(decisions: Decisions, plan: RestorePlan) -> Decisions:
    """The cluster once the plan is carried out."""
    fleet = with_edits(decisions.fleet, plan.cards.edits)
    made = {
        each.name: GPUPool(metadata=ObjectMeta(name=each.name), spec=msgspec.convert(each.spec, PoolSpec))
        for each in plan.objects
        if each.kind is Kind.POOL
    }
    awaited = {
        each.name: GPUApproval(
            metadata=ObjectMeta(name=each.name, resource_version="1"), spec=msgspec.convert(each.spec, ApprovalSpec)
        )
        for each in plan.awaited
    }
    held = {each.name: each for each in decisions.approvals}
    return msgspec.structs.replace(
        decisions,
        fleet=msgspec.structs.replace(fleet, pools={**fleet.pools, **made}),
        approvals=tuple((held | awaited).values()),
    )
