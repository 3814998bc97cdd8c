"""Why a pod waits: the first true cause, what it says, and what it advises."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateStatus
from gpu_control_plane.api.gpupool import Capacity, GPUPool, PoolCards, PoolPhase, PoolStatus
from gpu_control_plane.api.names import NodeCondition, PoolCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.explain.node_fit import misfit
from gpu_control_plane.pools.explain.pod import explain_pod
from gpu_control_plane.pools.explain.snapshot import PodSnapshot, PoolView
from gpu_control_plane.pools.node_capacity import NodeCapacity
from gpu_control_plane.pools.pending_reasons import PendingReason

TRAINING = "gpu.deckhouse.io/training"
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)

type Units = tuple[int, int, int]
"""Of a node: total, used, faulted; the rest is free."""


def pod(resource: str = TRAINING, count: str = "1", *, says: str = "", **spec: Any) -> WaitingPod:
    """A pod that the scheduler found no node for; `spec` is as Kubernetes writes it."""
    containers = spec.pop("containers", [{"resources": {"limits": {resource: count}}}])
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says}
    raw = {"spec": {"containers": containers, **spec}, "status": {"conditions": [said]}}
    return msgspec.convert(raw, WaitingPod)


def node(name: str, *, labels: dict[str, str] | None = None, ready: str = "True", **spec: Any) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            },
        },
        Node,
    )


def said(kind: str, status: bool, reason: Reason, message: str = "") -> Condition:
    return condition((), kind, status, reason, message, generation=1, now=NOW)


def situation(
    waiting: WaitingPod,
    nodes: Mapping[str, Units] | None = None,
    *,
    name: str = "training",
    objects: tuple[Node, ...] = (),
    kept_out: Mapping[PendingReason, Mapping[str, int]] | None = None,
    unready: Mapping[str, tuple[Reason, str]] | None = None,
    offered: bool = True,
    others: Mapping[str, PoolView] | None = None,
    spec: dict[str, Any] | None = None,
    **pool: Any,
) -> PodSnapshot:
    """The pod and a pool with so many units on each node."""
    kept_out = kept_out or {}
    resource = f"gpu.deckhouse.io/{name}"
    capacity = PoolCapacity()
    for place, (total, used, faulted) in (nodes or {}).items():
        free = total - used - faulted if offered else 0
        here = Capacity(name=resource, total=total, used=used, reserved=0, available=free, faulted=faulted)
        capacity.put(place, NodeCapacity((here,), used + free))
    cards = {
        "selected": sum(sum(counts.values()) for counts in kept_out.values())
        + sum(total for total, _, _ in (nodes or {}).values()),
        "waiting": [{"reason": reason, "cards": sum(counts.values())} for reason, counts in kept_out.items()],
    }
    status = msgspec.structs.replace(PoolStatus(cards=msgspec.convert(cards, PoolCards)), **pool)
    made = msgspec.convert({"metadata": {"name": name}, "spec": spec or {}}, GPUPool)
    view = PoolView(
        pool=msgspec.structs.replace(made, status=status),
        capacity=capacity,
        waiting_on=lambda reason: kept_out.get(reason, {}),
        approvable=lambda place: [f"{place}-card-{n}" for n in range(kept_out[PendingReason.APPROVAL][place])],
    )
    known = {each.name: each for each in objects}
    states = {
        place: GPUNodeState(
            status=NodeStateStatus(conditions=(said(NodeCondition.READY_FOR_POOLING, False, reason, message),))
        )
        for place, (reason, message) in (unready or {}).items()
    }
    return PodSnapshot(
        pod=waiting,
        pools={resource: view, **(others or {})},
        resources=lambda: (resource,),
        node=lambda place: known.get(place, node(place)),
        state=states.get,
    )


APPROVAL = PendingReason.APPROVAL
APPROVED = "gpu.deckhouse.io/assignment=training"
MISCONFIGURED = said(PoolCondition.CONFIGURED, False, Reason.NAME_COLLISION, "another has its name")
CARDS_APART = {"node-a": (2, 1, 0), "node-b": (2, 1, 0)}
TAINTED = node("node-a", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])

CASES: dict[str, tuple[PodSnapshot, Cause, str, str]] = {
    "mistyped": (
        situation(pod("gpu.deckhouse.io/trainnig")),
        Cause.NO_SUCH_POOL,
        "there is no pool with the resource gpu.deckhouse.io/trainnig; write gpu.deckhouse.io/training in",
        "",
    ),
    "misconfigured": (
        situation(pod(), {"node-a": (8, 0, 0)}, offered=False, conditions=(MISCONFIGURED,)),
        Cause.MISCONFIGURED,
        "the pool training is misconfigured: another has its name",
        "kubectl describe gpupool training",
    ),
    "misconfigured on one node, and all others in use": (
        situation(pod(), {"node-a": (8, 8, 0)}, conditions=(MISCONFIGURED,)),
        Cause.NO_FREE_UNIT,
        "1 card of the pool training asked for: 0 free, 8 in use",
        "",
    ),
    "maintenance": (
        situation(
            pod(),
            {"node-a": (8, 8, 0)},
            phase=PoolPhase.MAINTENANCE,
            conditions=(said(PoolCondition.READY, False, Reason.NOT_OFFERED, "5 units in use"),),
        ),
        Cause.MAINTENANCE,
        "the pool training is in maintenance: 5 units in use; the pod starts by itself",
        "kubectl describe gpupool training",
    ),
    "selects none": (situation(pod()), Cause.NO_CARDS, "has no cards: its deviceSelector selects none", "kubectl edit"),
    "approval": (
        situation(pod(), kept_out={APPROVAL: {"node-a": 800, "node-b": 800}}),
        Cause.AWAITING_APPROVAL,
        "the pool training has no cards",
        f"1,600 cards wait for approval: `kubectl annotate gpudevice node-a-card-0 {APPROVED}`",
    ),
    "burn-in": (
        situation(pod(), kept_out={PendingReason.BURN_IN: {"node-a": 8}}),
        Cause.BURN_IN,
        "8 cards: the agent tests the card before it may join a pool",
        "",
    ),
    "driver": (
        situation(
            pod(),
            kept_out={PendingReason.NODE_NOT_READY: {"node-a": 8, "node-b": 8}},
            unready={"node-a": (Reason.DRIVER_NOT_READY, "no driver is loaded")},
        ),
        Cause.DRIVER_MISSING,
        "node node-a, and 1 other node: no driver is loaded",
        "kubectl describe gpunodestate node-a",
    ),
    "conflicting plugin": (
        situation(
            pod(),
            {"node-a": (8, 0, 0)},
            offered=False,
            unready={"node-a": (Reason.CONFLICTING_DEVICE_PLUGIN, "nvidia-device-plugin serves its cards")},
        ),
        Cause.CONFLICTING_PLUGIN,
        "none of 8 cards of the pool training is offered by its node: node node-a: nvidia-device-plugin serves",
        "",
    ),
    "agent away": (situation(pod(), {"node-a": (8, 0, 0)}, offered=False), Cause.NOT_OFFERED, "none of 8 cards", ""),
    "all faulted": (situation(pod(), {"node-a": (2, 0, 2)}), Cause.CARD_FAULTED, "all 2 cards", "kubectl get gpudev"),
    "in use": (
        situation(pod(), {"node-a": (7, 6, 1)}),
        Cause.NO_FREE_UNIT,
        "1 card of the pool training asked for: 0 free, 6 in use, 1 faulted, 7 in all",
        "",
    ),
    "in use, and one could be approved": (
        situation(pod(), {"node-a": (7, 7, 0)}, kept_out={APPROVAL: {"node-b": 1}}),
        Cause.NO_FREE_UNIT,
        "0 free, 7 in use",
        "1 card waits for approval: `kubectl annotate gpudevice node-b-card-0 ",
    ),
    "slices": (
        situation(
            pod(count="2"),
            {"node-a": (8, 8, 0)},
            kept_out={APPROVAL: {"node-b": 1}},
            spec={"allocation": {"mode": "TimeSlice", "timeSlice": {"replicas": 4}}},
        ),
        Cause.NO_FREE_UNIT,
        "2 units of the pool training asked for: 0 free, 8 in use",
        "1 card waits for approval",
    ),
    "scattered": (
        situation(pod(count="2"), CARDS_APART),
        Cause.NOT_ON_ONE_NODE,
        "2 cards of the pool training asked for on one node: 2 are free, but at most 1 on one node",
        "",
    ),
    "scattered, and an approval elsewhere would not help": (
        situation(pod(count="2"), CARDS_APART, kept_out={APPROVAL: {"node-c": 1}}),
        Cause.NOT_ON_ONE_NODE,
        "at most 1 on one node",
        "",
    ),
    "scattered, and an approval here would help": (
        situation(pod(count="2"), CARDS_APART, kept_out={APPROVAL: {"node-b": 1, "node-c": 2}}),
        Cause.NOT_ON_ONE_NODE,
        "at most 1 on one node",
        f"3 cards wait for approval: `kubectl annotate gpudevice node-b-card-0 {APPROVED}`",
    ),
    "1k": (
        situation(pod(count="1k"), {"node-a": (8, 0, 0)}),
        Cause.TOO_MANY,
        "1,000 cards of the pool training asked for on one node, and no node of the pool has more than 8; ask for at",
        "add a node",
    ),
    "cordoned": (
        situation(pod(), {"node-a": (8, 0, 0)}, objects=(node("node-a", unschedulable=True),)),
        Cause.CORDONED,
        "1 node has 1 card of the pool training free, but node-a is cordoned",
        "kubectl uncordon node-a",
    ),
    "wrong nodeSelector": (
        situation(pod(nodeSelector={"disk": "ssd"}), {"node-a": (8, 0, 0), "node-b": (8, 7, 0)}),
        Cause.SELECTOR,
        "2 nodes have 1 card of the pool training free, but node-a, node-b do not match the pod's nodeSelector",
        "",
    ),
    "taint": (
        situation(pod(), {"node-a": (8, 0, 0)}, objects=(TAINTED,)),
        Cause.TAINT,
        "node-a has a taint that the pod does not tolerate (team=x:NoSchedule); add a toleration for team=x:NoSchedule",
        "kubectl taint node node-a team=x:NoSchedule-",
    ),
    "more CPU than any node has": (
        situation(
            pod(containers=[{"resources": {"limits": {TRAINING: "1"}, "requests": {"cpu": "64"}}}]),
            {"node-a": (8, 0, 0)},
        ),
        Cause.CPU_OR_MEMORY,
        "node-a has less cpu than the pod asks for",
        "",
    ),
    "CPU that other pods use": (
        situation(pod(says="0/2 nodes are available: 1 Insufficient cpu, 1 …"), {"node-a": (8, 0, 0)}),
        Cause.CPU_OR_MEMORY,
        "node node-a has 1 card of the pool training free, but other pods use the cpu",
        "",
    ),
    "node gone": (
        situation(pod(), {"node-a": (8, 0, 0)}, objects=(node("node-a", ready="Unknown"),)),
        Cause.NODE_NOT_READY,
        "node-a is not ready",
        "",
    ),
    "several reasons": (
        situation(
            pod(),
            {"node-a": (8, 0, 0), "node-b": (8, 0, 0), "node-c": (8, 0, 0)},
            objects=(TAINTED, node("node-b", unschedulable=True), node("node-c", unschedulable=True)),
        ),
        Cause.CORDONED,
        "but node-a has a taint that the pod does not tolerate (team=x:NoSchedule), node-b, node-c are cordoned",
        "kubectl uncordon node-b",
    ),
    "only the scheduler knows": (
        situation(pod(says="0/1 nodes are available: 1 node(s) had volume conflicts"), {"node-a": (8, 0, 0)}),
        Cause.SCHEDULER,
        "node node-a has 1 card of the pool training free",
        "",
    ),
}


def explained(snapshot: PodSnapshot) -> Explanation:
    found = explain_pod(snapshot)
    assert found is not None
    return found


@pytest.mark.parametrize(("snapshot", "cause", "words", "admin"), CASES.values(), ids=CASES.keys())
def test_the_first_true_cause_is_told_with_a_way_out(
    snapshot: PodSnapshot, cause: Cause, words: str, admin: str
) -> None:
    found = explained(snapshot)
    assert found.cause is cause
    assert words in found.note
    assert admin in found.admin
    assert bool(admin) <= bool(found.admin)
    if not admin and cause in {Cause.NO_FREE_UNIT, Cause.NOT_ON_ONE_NODE}:
        assert "approval" not in found.note


def test_a_pod_that_asks_for_no_card_of_a_pool_is_not_explained() -> None:
    assert explain_pod(situation(pod("nvidia.com/gpu"))) is None
    assert explain_pod(situation(pod("cpu"))) is None
    assert explain_pod(situation(pod(count="0"))) is None


def test_a_gated_pod_waits_for_whoever_set_the_gate() -> None:
    gated = pod()
    status = msgspec.convert(
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, type(gated.status)
    )
    assert explained(situation(msgspec.structs.replace(gated, status=status))).cause is Cause.GATED


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"initContainers": [{"resources": {"limits": {TRAINING: "2"}}}]}, 2),
        ({"initContainers": [{"restartPolicy": "Always", "resources": {"limits": {TRAINING: "1"}}}]}, 2),
        (
            {
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"limits": {TRAINING: "1"}}},
                    {"resources": {"limits": {TRAINING: "4"}}},
                ]
            },
            5,
        ),
        ({"containers": [{"resources": {"limits": {TRAINING: "1"}}}, {"resources": {"limits": {TRAINING: "3"}}}]}, 4),
    ],
    ids=["init container", "sidecar", "init container beside a sidecar", "two containers"],
)
def test_units_are_counted_as_the_scheduler_counts_them(spec: dict[str, Any], needed: int) -> None:
    found = explained(situation(pod(**spec), {"node-a": (8, 8, 0)}))
    assert found.sentence.startswith(f"{needed} cards of the pool training asked for: 0 free")


def test_a_pod_with_a_card_for_its_init_container_alone_is_explained() -> None:
    waiting = pod(containers=[{}], initContainers=[{"resources": {"limits": {TRAINING: "1"}}}])
    assert explained(situation(waiting, {"node-a": (1, 1, 0)})).cause is Cause.NO_FREE_UNIT


def test_two_pools_in_one_pod() -> None:
    both = pod(containers=[{"resources": {"limits": {TRAINING: "1", "gpu.deckhouse.io/inference": "1"}}}])
    inference = situation(both, {"node-b": (1, 0, 0)}, name="inference").pools
    apart = explained(situation(both, {"node-a": (1, 0, 0)}, others=inference))
    assert apart.cause is Cause.NOT_ON_ONE_NODE
    assert apart.sentence == (
        "1 card of the pool inference and 1 card of the pool training asked for on one node: each is free somewhere, "
        "but not on the same node"
    )
    taken = explained(situation(both, {"node-b": (1, 1, 0)}, others=inference))
    assert (taken.cause, taken.pool) == (Cause.NO_FREE_UNIT, "training")


def test_others_are_named_to_an_administrator_alone() -> None:
    snapshot = msgspec.structs.replace(
        situation(pod(), {"node-a": (7, 7, 0)}), ahead=3, holders={TRAINING: {"team-a": 2, "team-b": 5}}
    )
    found = explained(snapshot)
    assert found.facts == (
        "pods ahead that ask for the same, by priority and age: 3",
        "held by namespace: team-b 5, team-a 2",
    )
    assert "team-b" not in found.note


@pytest.mark.parametrize(
    ("spec", "here", "fits"),
    [
        ({}, node("a"), True),
        ({"tolerations": [{"operator": "Exists"}]}, node("a", unschedulable=True), True),
        ({"tolerations": [{"key": "team", "value": "x"}]}, TAINTED, True),
        ({"tolerations": [{"key": "team", "value": "y"}]}, TAINTED, False),
        ({"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute"}]}, TAINTED, False),
        ({}, node("a", taints=[{"key": "soft", "effect": "PreferNoSchedule"}]), True),
    ],
)
def test_tolerations_are_those_of_kubernetes(spec: dict[str, Any], here: Node, fits: bool) -> None:
    assert (misfit(pod(**spec), here) is None) is fits


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "rack", "operator": "Exists"}, False),
        ({"key": "rack", "operator": "DoesNotExist"}, True),
        ({"key": "slot", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "slot", "operator": "Lt", "values": ["3"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["3"]}, False),
    ],
)
def test_node_affinity_is_that_of_kubernetes(expression: dict[str, Any], fits: bool) -> None:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }
    waiting = pod(affinity={"nodeAffinity": required})
    assert (misfit(waiting, node("a", labels={"zone": "a", "slot": "4"})) is None) is fits
