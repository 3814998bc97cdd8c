"""Fleets made by hand: one with a bit of everything, and one as large as the largest clusters."""

import random
from datetime import UTC, datetime, timedelta

import msgspec

from gpu_control_plane.api.gpudevice import (
    PCI,
    Change,
    DeviceSpec,
    DeviceState,
    DeviceStatus,
    GPUDevice,
    Hardware,
    MIGCapability,
    Telemetry,
    User,
    Vendor,
)
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation, DeviceCondition, Label, NodeCondition, PoolCondition
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.api.shapes import PoolRef
from gpu_control_plane.console.capacity_history import CapacityHistory
from gpu_control_plane.console.card_history import CardHistory
from gpu_control_plane.console.usage_answers import ReadUsage
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Condition, ObjectMeta
from gpu_control_plane.usage.held_now import PodStart, held_now
from gpu_control_plane.usage.hours import By, add_up
from gpu_control_plane.usage.reading import NO_PROMETHEUS, Usage
from gpu_control_plane.views.fleet import Fleet

NOW = datetime.now(UTC)
_MODELS = {"h200": ("NVIDIA H200", 144384), "h100": ("NVIDIA H100 80GB HBM3", 81559), "l40s": ("NVIDIA L40S", 46068)}


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def address_of(slot: int) -> str:
    return f"0000:{0x18 + slot * 0x13:02x}:00.0"


def make_card(
    node: str,
    slot: int,
    *,
    pool: str | None = None,
    pod: str | None = None,
    busy: int | None = None,
    reason: str | None = None,
    state: DeviceState | None = None,
    cards: int = 8,
    fault: str | None = None,
    history: tuple[Change, ...] = (),
    ignored: bool = False,
    hold: str | None = None,
) -> GPUDevice:
    address = address_of(slot)
    product, memory = _MODELS[node.partition("-")[0]]
    namespace, _, name = (pod or "").partition("/")
    users = (
        (User(namespace=namespace, pod=name, container="main", resource=f"gpu.deckhouse.io/{pool}", units=1),)
        if pod
        else ()
    )
    state = state or (DeviceState.ASSIGNED if pool else DeviceState.UNASSIGNED)
    linked = not node.startswith("l40s")
    labels = {Label.NODE.value: node, Label.PRODUCT.value: product.replace(" ", "-")}
    healthy = Condition(
        type=DeviceCondition.HEALTHY.value,
        status="False" if fault else "True",
        reason="XidReported" if fault else "Healthy",
        message=fault or "",
        last_transition_time=ago(hours=3),
    )
    return GPUDevice(
        metadata=ObjectMeta(
            name=f"{node}-{address.replace(':', '-').replace('.', '-')}",
            creation_timestamp=ago(days=12, hours=slot),
            resource_version="1",
            uid=f"{node}-{slot}",
            labels=labels | ({Label.IGNORE.value: "true"} if ignored else {}),
            annotations=({Annotation.ASSIGNMENT.value: pool} if pool else {})
            | ({Annotation.HOLD.value: hold} if hold else {}),
        ),
        spec=DeviceSpec(node_name=node, pci_address=address),
        status=DeviceStatus(
            state=state,
            pool_ref=PoolRef(name=pool) if pool else None,
            pending_reason=reason,
            hardware=Hardware(
                vendor=Vendor.NVIDIA,
                product=product,
                uuid=f"GPU-5f0{slot}c1de-{abs(hash(node)) % 9999:04d}-4b1a-9e51-0c0ffee0{slot:04d}",
                memory_mib=memory,
                pci=PCI(vendor="10de", device="2335", class_="0302", address=address),
                compute_capability="9.0" if linked else "8.9",
                architecture="Hopper" if linked else "Ada",
                numa_node=0 if slot < cards / 2 else 1,
                nvlink_peers=tuple(address_of(other) for other in range(cards) if other != slot) if linked else (),
                mig=MIGCapability(capable=linked, enabled=False),
            ),
            used_by=users,
            telemetry=Telemetry(
                utilisation=busy,
                temperature=41 + (busy or 0) * 3 // 10,
                power=118 + (busy or 0) * 5,
                memory_used=memory * 7 // 9 if pod else 4,
                ecc_errors=0,
                last_xid=79 if fault else None,
                at=ago(seconds=10800 if fault or (pod and not busy) else 4),
            )
            if busy is not None
            else None,
            history=history,
            conditions=(healthy,),
        ),
    )


def make_state(
    node: str, cards: list[GPUDevice], *, problem: str | None = None, driver: str = "580.65.06"
) -> GPUNodeState:
    ready = "False" if problem else "True"
    conditions = [
        (NodeCondition.INVENTORY_COMPLETE, "True", "InventorySynced", "8 cards, as on the PCI bus"),
        (NodeCondition.DRIVER_MISSING, "False", "DriverFound", ""),
        (NodeCondition.TOOLKIT_MISSING, "False", "ToolkitFound", ""),
        (NodeCondition.MONITORING_MISSING, "False", "MonitoringFound", ""),
        (NodeCondition.GFD_READY, "True", "FeatureLabelsFound", ""),
        (
            NodeCondition.DEGRADED,
            "True" if problem else "False",
            "ConflictingDevicePlugin" if problem else "Undisturbed",
            problem or "",
        ),
        (NodeCondition.READY_FOR_POOLING, ready, "ConflictingDevicePlugin" if problem else "Ready", problem or ""),
    ]
    pools = {
        "assigned": [
            {"inventoryID": card.name, "pool": card.status.pool_ref.name} for card in cards if card.status.pool_ref
        ],
        "pending": [
            {"inventoryID": card.name, "reason": card.status.pending_reason}
            for card in cards
            if not card.status.pool_ref
        ],
    }
    held = sum(bool(card.status.used_by) for card in cards)
    resources: dict[str, list[int]] = {}
    for card in cards:
        if card.status.pool_ref:
            each = resources.setdefault(card.status.pool_ref.name, [0, 0])
            each[0] += 1
            each[1] += card.status.state is not DeviceState.FAULTED
    plugin = {
        "observedGeneration": 1,
        "used": held,
        "free": sum(each[1] for each in resources.values()) - held,
        "resources": [
            {
                "name": f"gpu.deckhouse.io/{pool}",
                "units": units,
                "healthy": healthy,
                "inventoryIDs": [
                    card.name for card in cards if card.status.pool_ref and card.status.pool_ref.name == pool
                ],
            }
            for pool, (units, healthy) in resources.items()
        ],
    }
    status = {
        "deviceCount": len(cards),
        "devices": [
            {
                "inventoryID": card.name,
                "pciAddress": card.spec.pci_address,
                "product": card.status.hardware.product if card.status.hardware else "",
            }
            for card in cards
        ],
        "driver": {"version": driver, "cudaVersion": "13.0", "source": "Container"},
        "toolkit": {"injection": "CDI", "runtime": "containerd://2.1.4"},
        "monitoring": {"source": "Agent"},
        "pools": pools,
        "plugin": plugin,
        "validation": {
            "driverVersion": driver,
            "steps": [{"name": step, "result": "Passed"} for step in ("driver", "toolkit", "cuda", "plugin")],
        },
        "conditions": [
            {
                "type": str(kind),
                "status": said,
                "reason": reason,
                "message": message,
                "lastTransitionTime": ago(days=2).isoformat(),
            }
            for kind, said, reason, message in conditions
        ],
    }
    orders = [
        {
            "inventoryID": card.name,
            "pool": card.status.pool_ref.name,
            "resources": [{"name": f"gpu.deckhouse.io/{card.status.pool_ref.name}", "units": 1}],
            "allocation": {"mode": "Exclusive"},
        }
        for card in cards
        if card.status.pool_ref
    ]
    metadata = {"name": node, "creationTimestamp": ago(days=30).isoformat(), "generation": 1}
    raw = {"metadata": metadata, "spec": {"assignments": orders}, "status": status}
    return msgspec.convert(raw, GPUNodeState, strict=False)


def make_node(name: str, *, upgrade: str | None = None, ready: bool = True) -> Node:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "rack-a"}
    if upgrade:
        labels["nvidia.com/gpu-driver-upgrade-state"] = upgrade
    began = {"wait-for-jobs-required": 26, "upgrade-done": 190}.get(upgrade or "")
    annotations = {str(NodeAnnotation.STEP_SINCE): str(int(ago(minutes=began).timestamp()))} if began else {}
    raw = {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.12.48"},
            "allocatable": {"cpu": "128", "memory": "2Ti"},
        },
    }
    return msgspec.convert(raw, Node)


def make_pool(name: str, cards: list[GPUDevice], *, products: list[str], **spec: object) -> GPUPool:
    members = [card for card in cards if card.status.pool_ref and card.status.pool_ref.name == name]
    total, used = len(members), sum(bool(card.status.used_by) for card in members)
    faulted = sum(card.status.state is DeviceState.FAULTED for card in members)
    free = total - used - faulted
    units = {"total": total, "used": used, "reserved": 0, "available": free, "faulted": faulted}
    nodes = {card.spec.node_name for card in members}
    waiting = sum(card.status.pending_reason == "AwaitingApproval" for card in cards) if name == "training" else 0
    raw = {
        "metadata": {
            "name": name,
            "creationTimestamp": ago(days=40).isoformat(),
            "generation": 3,
            "uid": name,
            "resourceVersion": "1",
        },
        "spec": {"deviceSelector": {"include": {"products": products}}, **spec},
        "status": {
            "observedGeneration": 3,
            "phase": "Ready",
            "allocation": {"mode": "Exclusive"},
            "units": units,
            "capacity": [{"name": f"gpu.deckhouse.io/{name}", **units}],
            "cards": {
                "selected": total + waiting,
                "waiting": [{"reason": "AwaitingApproval", "cards": waiting}] if waiting else [],
            },
            "nodes": {
                "total": len(nodes),
                "ready": len(nodes),
                "worst": [
                    {
                        "name": card.spec.node_name,
                        "cards": 1,
                        "reason": "Faulted",
                        "message": f"{card.name}: XID 79, the card has fallen off the bus",
                    }
                    for card in members
                    if card.status.state is DeviceState.FAULTED
                ],
            },
            "conditions": [
                {
                    "type": str(kind),
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": ago(days=3).isoformat(),
                }
                for kind, reason, message in (
                    (PoolCondition.CONFIGURED, "Configured", ""),
                    (PoolCondition.READY, "CardsOnOffer", f"{len(nodes)} nodes offer cards"),
                    (PoolCondition.ACCESSIBLE, "AccessGranted", ""),
                    (PoolCondition.GUARDED, "PolicyInForce", ""),
                    (PoolCondition.QUOTAS_HOLD, "QuotasHold", ""),
                )
            ],
        },
    }
    return msgspec.convert(raw, GPUPool, strict=False)


def make_waiting(namespace: str, name: str, pool: str, units: int, minutes: float) -> WaitingPod:
    raw = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "creationTimestamp": ago(minutes=minutes).isoformat(),
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [
                {
                    "name": "main",
                    "resources": {
                        "limits": {f"gpu.deckhouse.io/{pool}": str(units)},
                        "requests": {f"gpu.deckhouse.io/{pool}": str(units)},
                    },
                }
            ],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/8 nodes are available: 8 Insufficient gpu.deckhouse.io/training.",
                }
            ],
        },
    }
    return msgspec.convert(raw, WaitingPod, strict=False)


_HISTORY = (
    Change(what="Approved for training", who="alice@example.com", when=ago(days=4, hours=2), why="new rack"),
    Change(what="Burn-in passed", who="gpu-agent", when=ago(days=4, hours=3), why="12 minutes, nothing was wrong"),
    Change(what="Detected", who="gpu-control-plane", when=ago(days=4, hours=4)),
)


def sample_fleet() -> Fleet:
    """Eight nodes, 56 cards, three pools."""
    cards: list[GPUDevice] = []
    for slot in range(8):
        cards.append(make_card("h200-1", slot, pool="training", pod="team-a/llama-70b-0", busy=98, history=_HISTORY))
        cards.append(
            make_card(
                "h200-2",
                slot,
                pool="training",
                pod="team-a/llama-70b-1" if slot < 4 else "team-b/vision-sweep-3" if slot < 7 else None,
                busy=96 if slot < 4 else 91 if slot < 7 else 0,
                history=_HISTORY,
            )
        )
        fault = "XID 79: the card has fallen off the bus" if slot == 5 else None
        cards.append(
            make_card(
                "h200-3",
                slot,
                pool="training",
                state=DeviceState.FAULTED if fault else None,
                fault=fault,
                busy=0 if fault else (0 if slot < 3 else 88),
                pod="team-b/notebook-kim" if slot < 2 else "team-c/finetune-12" if slot in (3, 4, 6) else None,
                history=_HISTORY,
            )
        )
        cards.append(make_card("h200-4", slot, reason="AwaitingApproval" if slot != 7 else "BurningIn", busy=0))
        cards.append(
            make_card(
                "h100-1",
                slot,
                pool="research",
                pod="team-c/eval-nightly" if slot < 5 else None,
                busy=73 if slot < 5 else 0,
            )
        )
        cards.append(
            make_card(
                "h100-2",
                slot,
                pool="research",
                pod="team-d/jupyter-lee" if slot == 0 else "team-d/jupyter-ann" if slot == 1 else None,
                busy=0,
                state=DeviceState.DRAINING if slot == 6 else None,
                ignored=slot == 7,
            )
        )
    for slot in range(4):
        cards.append(
            make_card(
                "l40s-1",
                slot,
                pool="inference",
                pod="serving/chat-7c98d-x2x9k" if slot < 3 else None,
                busy=64 if slot < 3 else 0,
                cards=4,
            )
        )
        cards.append(make_card("l40s-2", slot, reason="NodeNotReady", busy=None, cards=4))
    by_node: dict[str, list[GPUDevice]] = {}
    for card in cards:
        by_node.setdefault(card.spec.node_name, []).append(card)
    problem = "daemonset/nvidia-device-plugin serves the node's cards, too: remove it, or run kubectl gpu migrate"
    states = {
        name: make_state(
            name,
            held,
            problem=problem if name == "l40s-2" else None,
            driver="570.133.20" if name.startswith("h100") else "580.65.06",
        )
        for name, held in by_node.items()
    }
    upgrades = {
        "h200-1": "upgrade-done",
        "h200-2": "upgrade-done",
        "h200-3": "upgrade-done",
        "h200-4": "upgrade-done",
        "h100-1": "wait-for-jobs-required",
        "h100-2": "upgrade-required",
    }
    pools = [
        make_pool(
            "training",
            cards,
            products=["*H200*"],
            access={"namespaces": ["team-a", "team-b", "team-c"]},
            quotas=[{"namespace": "team-a", "units": 16}, {"namespace": "team-b", "units": 8}],
        ),
        make_pool("research", cards, products=["*H100*"], access={"namespaces": ["team-c", "team-d"]}),
        make_pool("inference", cards, products=["*L40S*"], access={"namespaceSelector": {}}),
    ]
    return Fleet(
        cards={card.name: card for card in cards},
        states=states,
        pools={pool.name: pool for pool in pools},
        nodes={name: make_node(name, upgrade=upgrades.get(name)) for name in by_node},
        waiting=[
            make_waiting("team-a", "llama-405b-0", "training", 8, 14),
            make_waiting("team-b", "vision-sweep-4", "training", 4, 3),
        ],
    )


def large_fleet(nodes: int = 5000) -> Fleet:
    """Nodes of eight cards, in four pools, with a bit of everything."""
    cards: list[GPUDevice] = []
    names = [f"h200-{number}" if number % 5 else f"h100-{number}" for number in range(1, nodes + 1)]
    rng = random.Random(7)
    for number, name in enumerate(names):
        pool = ("training", "training", "research", "inference", "evaluation")[number * 5 // nodes]
        whole, busy, held = rng.random(), rng.randint(60, 99), rng.randint(0, 8)
        for slot in range(8):
            pod = f"team-{number % 7}/job-{number}" if whole < 0.62 or slot < held else None
            if rng.random() < 0.002:
                cards.append(make_card(name, slot, pool=pool, state=DeviceState.FAULTED, fault="XID 79", busy=0))
            elif number % 97 == 0:
                cards.append(make_card(name, slot, reason="AwaitingApproval", busy=0))
            else:
                idle = pod is None or whole > 0.9 or rng.random() < 0.01
                cards.append(make_card(name, slot, pool=pool, pod=pod, busy=0 if idle else busy))
    by_node: dict[str, list[GPUDevice]] = {}
    for card in cards:
        by_node.setdefault(card.spec.node_name, []).append(card)
    return Fleet(
        cards={card.name: card for card in cards},
        states={name: make_state(name, held) for name, held in by_node.items()},
        pools={
            name: make_pool(name, cards, products=["*"]) for name in ("training", "research", "inference", "evaluation")
        },
        nodes={name: make_node(name) for name in by_node},
    )


_SECTIONS = (
    "operator",
    "daemonsets",
    "driver",
    "toolkit",
    "devicePlugin",
    "dcgmExporter",
    "dcgm",
    "nodeStatusExporter",
    "gfd",
)


def sample_objects() -> dict[str, list[object]]:
    """What a console shows beside its fleet: a ClusterPolicy, and Events."""
    states = [
        ("pre-requisites", "ready", 0),
        ("state-operator-metrics", "ready", 0),
        ("state-driver", "notReady", 5),
        ("state-container-toolkit", "ready", 6),
        ("state-operator-validation", "ready", 6),
        ("state-device-plugin", "disabled", 0),
        ("state-dcgm-exporter", "ready", 6),
        ("gpu-feature-discovery", "ready", 6),
        ("state-mig-manager", "disabled", 0),
    ]
    policy = {
        "metadata": {"name": "cluster-policy", "creationTimestamp": ago(days=60).isoformat()},
        "spec": {
            **{part: {} for part in _SECTIONS},
            "driver": {"upgradePolicy": {"autoUpgrade": True}},
        },
        "status": {
            "state": "notReady",
            "namespace": "gpu-control-plane",
            "states": [
                {
                    "name": name,
                    "state": state,
                    "ready": ready,
                    "desired": 6 if ready else 0,
                    **({"message": "h100-1 waits for running work"} if state == "notReady" else {}),
                }
                for name, state, ready in states
            ],
        },
    }
    notes = [
        (
            "GPUDevice",
            "",
            "h200-3-0000-77-00-0",
            "GPUDeviceFaulted",
            "Warning",
            "XID 79: the card has fallen off the bus; it is out of service",
            180,
        ),
        (
            "Pod",
            "team-a",
            "llama-405b-0",
            "WaitingForGPU",
            "Warning",
            "gpu.deckhouse.io/training has no node with 8 free units",
            14,
        ),
        ("GPUPool", "", "training", "GPUPoolPhaseChanged", "Normal", "Pending → Ready: nodes offer cards", 4000),
        (
            "GPUNodeState",
            "",
            "l40s-2",
            "ConflictingDevicePlugin",
            "Warning",
            "daemonset/nvidia-device-plugin serves the node's cards, too",
            40,
        ),
        (
            "GPUDevice",
            "",
            "h200-2-0000-18-00-0",
            "GPUDeviceAssigned",
            "Normal",
            "it has joined training, approved by alice@example.com",
            5000,
        ),
    ]
    events = [
        {
            "metadata": {"name": f"event-{number}", "namespace": namespace or "default"},
            "regarding": {"kind": kind, "name": name, "namespace": namespace, "apiVersion": "v1", "uid": "1"},
            "type": level,
            "reason": reason,
            "note": note,
            "reportingController": "gpu-control-plane",
            "eventTime": ago(minutes=minutes).isoformat(),
        }
        for number, (kind, namespace, name, reason, level, note, minutes) in enumerate(notes)
    ]
    ray = {
        "metadata": {"name": "eval", "namespace": "team-c", "creationTimestamp": ago(hours=7).isoformat()},
        "spec": {"rayVersion": "2.52.0"},
        "status": {
            "state": "ready",
            "availableWorkerReplicas": 1,
            "desiredWorkerReplicas": 2,
            "desiredGPU": "8",
            "conditions": [
                {
                    "type": "CapacitySufficient",
                    "status": "False",
                    "reason": "PoolTooSmall",
                    "message": "training has 7",
                    "lastTransitionTime": ago(hours=7).isoformat(),
                }
            ],
        },
    }
    job = {
        "metadata": {"name": "finetune", "namespace": "team-c", "creationTimestamp": ago(hours=7).isoformat()},
        "status": {"jobDeploymentStatus": "Initializing", "rayClusterName": "eval"},
    }
    service = {
        "metadata": {"name": "chat", "namespace": "team-c", "creationTimestamp": ago(hours=3).isoformat()},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": ago(hours=3).isoformat(), "reason": "Serves"}
            ]
        },
    }
    return {
        "rays": [msgspec.convert(ray, RayClusterView, strict=False)],
        "ray_jobs": [msgspec.convert(job, RayJobView, strict=False)],
        "ray_services": [msgspec.convert(service, RayServiceView, strict=False)],
        "policies": [msgspec.json.decode(msgspec.json.encode(policy), type=StoredClusterPolicy, strict=False)],
        "events": [msgspec.convert(event, Event, strict=False) for event in events],
    }


def sample_history(fleet: Fleet) -> CapacityHistory:
    """Eight hours in which the pool training filled up."""
    history = CapacityHistory(lambda: fleet)
    for minute in range(0, 480, 4):
        cards = dict(fleet.cards)
        for number, card in enumerate(list(cards.values())):
            if card.status.used_by and number * 11 % 480 > minute + (minute * number) % 120:
                cards[card.name] = msgspec.structs.replace(
                    card, status=msgspec.structs.replace(card.status, used_by=())
                )
        pools = {name: make_pool(name, list(cards.values()), products=["*"]) for name in fleet.pools}
        history.record(msgspec.structs.replace(fleet, cards=cards, pools=pools), ago(minutes=480 - minute))
    return history


def sample_card_history(fleet: Fleet) -> CardHistory:
    """Eight hours in which cards had work, and pauses between it, until they became what they are now."""
    history = CardHistory(ago(hours=8))
    for number, card in enumerate(fleet.cards.values()):
        dice = random.Random(number)
        memory = card.status.hardware.memory_mib if card.status.hardware is not None else None
        now = card.status.telemetry
        for minute in sorted(dice.sample(range(480), 24)):
            busy = dice.choice((0, 0, 62, 88, 97))
            telemetry = Telemetry(
                utilisation=busy,
                temperature=41 + busy * 3 // 10,
                power=118 + busy * 5,
                memory_used=(memory or 0) * dice.randint(3, 8) // 9 if busy else 4,
                at=ago(minutes=480 - minute),
            )
            if now is not None and telemetry.at < now.at:
                history.record(_reading(card, telemetry), NOW)
        history.record(card, NOW)
    return history


def _reading(card: GPUDevice, telemetry: Telemetry) -> GPUDevice:
    return msgspec.structs.replace(card, status=msgspec.structs.replace(card.status, telemetry=telemetry))


def sample_usage(fleet: Fleet) -> ReadUsage:
    """Hours of its pods: as Prometheus has them, but of a day only those that hold cards now."""
    pods = {
        (user.namespace, user.pod): PodStart(started=ago(hours=90))
        for card in fleet.cards.values()
        for user in card.status.used_by
    }

    async def read(by: By, since: timedelta) -> Usage:
        hours = held_now(fleet.cards.values(), pods, by, now=NOW, since=since).hours
        total = since.total_seconds() / 3600
        if since <= timedelta(days=1):
            notes = list(NO_PROMETHEUS)
            return Usage(by=by, source="objects", since=total, covered=None, rows=add_up(hours), notes=notes)
        rows = add_up(
            msgspec.structs.replace(each, used=each.held * 0.7, idle=each.held * 0.1, measured=each.held)
            for each in hours
        )
        notes = [f"Prometheus knows of 700.0 of these {total:.0f} hours only."]
        return Usage(by=by, source="Prometheus", since=total, covered=700, rows=rows, notes=notes)

    return read
