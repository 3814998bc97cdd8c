"""A small healthy cluster as plain objects, and ways to spoil it: a patch to one object, one more, or one less."""

import base64
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import __version__
from gpu_control_plane.api import DEFINITIONS
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.installation.policies import policies
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from gpu_control_plane.kube.certificates import new_authority
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
NODE, CARD, POOL = "h200-1", "h200-1-0000-18-00-0", "training"
RESOURCE = f"gpu.deckhouse.io/{POOL}"
INDEX_KEY = f"gpu.deckhouse.io_{POOL}"

SECTIONS = (
    "operator",
    "driver",
    "toolkit",
    "devicePlugin",
    "dcgmExporter",
    "dcgm",
    "gfd",
    "nodeStatusExporter",
    "daemonsets",
)
"""What a ClusterPolicy has to have."""

type Item = dict[str, Any]
type Cluster = dict[str, list[Item]]
type Spoil = Callable[[Cluster], None]


def ago(**spent: float) -> str:
    return (NOW - timedelta(**spent)).isoformat()


def meta(name: str, namespace: str | None = None, **more: Any) -> Item:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": ago(hours=2), "generation": 1, **place, **more}


def condition(kind: str, status: str = "True", reason: str = "Fine", message: str = "") -> Item:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(hours=1),
    }


def pod(name: str, namespace: str, component: str = "", **more: Any) -> Item:
    labels = {"app.kubernetes.io/name": "gpu-control-plane", "app.kubernetes.io/component": component}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": ago(hours=1)}
    return {
        "metadata": meta(name, namespace, labels=labels if component else {}),
        "spec": {"nodeName": NODE, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "conditions": [ready], **more},
    }


def asking(name: str, resource: str = RESOURCE, **more: Any) -> Item:
    """A pod of a tenant that asks for a card."""
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    return {
        "metadata": meta(name, "team-a", **more),
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


@cache
def bundle() -> str:
    """A certificate authority as a configuration has it."""
    return base64.b64encode(new_authority("ours", now=NOW, valid_for=timedelta(days=365)).certificate).decode()


def webhook_configuration(kind: str) -> Item:
    config = {"service": {"name": WEBHOOKS, "namespace": NAMESPACE}, "caBundle": bundle()}
    return {"kind": kind, "metadata": meta(WEBHOOKS), "webhooks": [{"name": f"x.{kind}", "clientConfig": config}]}


def healthy() -> Cluster:
    """One node with one card in one pool, everything as it should be."""
    lease = {
        "holderIdentity": "controller-0",
        "leaseDurationSeconds": 15,
        "renewTime": (NOW - timedelta(seconds=2)).isoformat(),
    }
    order = {
        "inventoryID": CARD,
        "pool": POOL,
        "resources": [{"name": RESOURCE, "units": 1}],
        "allocation": {"mode": "Exclusive"},
    }
    return {
        Source.CRDS: [
            {
                "metadata": meta(name, annotations={"gpu.deckhouse.io/crd-version": __version__}),
                "status": {"conditions": [condition("Established")]},
            }
            for name in (*(definition.name for definition in DEFINITIONS), "nodefeatures.nfd.k8s-sigs.io")
        ],
        Source.DEPLOYMENTS: [
            {
                "metadata": meta("gpu-control-plane-controller", NAMESPACE),
                "spec": {"replicas": 2},
                "status": {"availableReplicas": 2},
            }
        ],
        Source.DAEMONSETS: [{"metadata": meta("gpu-control-plane-agent", NAMESPACE)}],
        Source.PODS: [pod("controller-0", NAMESPACE, "controller"), pod("agent-0", NAMESPACE, "agent")],
        Source.LEASES: [{"metadata": meta("gpu-control-plane", NAMESPACE), "spec": lease}],
        Source.NVIDIA_LEASES: [],
        Source.WEBHOOKS: [
            webhook_configuration("ValidatingWebhookConfiguration"),
            webhook_configuration("MutatingWebhookConfiguration"),
        ],
        Source.ENDPOINTS: [
            {
                "metadata": meta("webhook-abc", NAMESPACE, labels={"kubernetes.io/service-name": WEBHOOKS}),
                "endpoints": [{"conditions": {"ready": True}}],
            }
        ],
        Source.POLICIES: [
            deepcopy(each) for each in policies(NAMESPACE) if each["kind"] == "ValidatingAdmissionPolicy"
        ],
        Source.BINDINGS: [deepcopy(each) for each in policies(NAMESPACE) if each["kind"].endswith("Binding")],
        Source.INDEX: [
            {
                "metadata": meta("gpu-pool-access", NAMESPACE),
                "data": {INDEX_KEY: f"pool {POOL}\nselector Every\n\n"},
            }
        ],
        Source.REPORTS: [{"metadata": meta(f"gpu-control-plane-{NODE}", NAMESPACE, uid="report", generation=3)}],
        Source.CARDS: [
            {
                "metadata": meta(CARD),
                "spec": {"nodeName": NODE, "pciAddress": "0000:18:00.0"},
                "status": {"state": "Assigned", "poolRef": {"name": POOL}, "conditions": [condition("Healthy")]},
            }
        ],
        Source.STATES: [
            {
                "metadata": meta(NODE, generation=4),
                "spec": {"assignments": [order]},
                "status": {
                    "deviceCount": 1,
                    "observedReport": {"uid": "report", "generation": 3},
                    "plugin": {"observedGeneration": 4, "resources": [{"name": RESOURCE, "units": 1, "healthy": 1}]},
                    "conditions": [
                        condition("InventoryComplete"),
                        condition("DriverMissing", "False"),
                        condition("ToolkitMissing", "False"),
                        condition("MonitoringMissing", "False"),
                        condition("GFDReady"),
                        condition("Degraded", "False"),
                        condition("ReadyForPooling"),
                    ],
                },
            }
        ],
        Source.POOLS: [
            {
                "metadata": meta(POOL),
                "spec": {"access": {"namespaceSelector": {}}},
                "status": {
                    "observedGeneration": 1,
                    "phase": "Ready",
                    "units": {"total": 1, "used": 0, "reserved": 0, "available": 1, "faulted": 0},
                    "cards": {"selected": 1},
                    "conditions": [condition(each) for each in ("Configured", "Ready", "Accessible", "Guarded")],
                },
            }
        ],
        Source.NODES: [
            {
                "metadata": meta(NODE, labels={"gpu.deckhouse.io/gpu.present": "true"}),
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {RESOURCE: "1"}},
            }
        ],
        Source.WAITING: [],
        Source.FAILED: [],
        Source.REFUSALS: [],
        Source.CLUSTER_POLICIES: [
            {
                "metadata": meta("cluster-policy"),
                "spec": {section: {} for section in SECTIONS},
                "status": {"state": "ready", "states": [{"name": "state-driver", "state": "ready"}]},
            }
        ],
        Source.DRIVERS: [],
        Source.RUNTIME_CLASSES: [{"metadata": meta("nvidia")}],
        Source.KUBERAY_LEASES: [],
        Source.RAY_CRDS: [
            {"metadata": meta("rayclusters.ray.io"), "spec": {"versions": [{"name": "v1", "served": True}]}}
        ],
        Source.RAY_CLUSTERS: [
            {
                "metadata": meta("eval", "research"),
                "status": {"state": "ready", "conditions": [condition("Valid"), condition("CapacitySufficient")]},
            }
        ],
        Source.RAY_JOBS: [
            {
                "metadata": meta("train", "research"),
                "status": {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "eval"},
            }
        ],
        Source.RAY_SERVICES: [{"metadata": meta("chat", "research"), "status": {"conditions": [condition("Ready")]}}],
    }


def snapshot(cluster: Cluster) -> Snapshot:
    """The objects as checks see them."""
    hints = get_type_hints(Snapshot)
    kinds = {
        "ValidatingWebhookConfiguration": ValidatingWebhookConfiguration,
        "MutatingWebhookConfiguration": MutatingWebhookConfiguration,
    }

    def read(source: str, item: Item) -> Any:
        kind = kinds[item["kind"]] if source == Source.WEBHOOKS else get_args(hints[source])[0]
        return msgspec.json.decode(msgspec.json.encode(item), type=kind)

    fields: dict[str, Any] = {source: tuple(read(source, item) for item in cluster[source]) for source in Source}
    return Snapshot(now=NOW, **fields)


def changed(source: Source, patch: Item, number: int = 0) -> Spoil:
    """Merges a patch into one object; conditions are replaced by their type."""

    def spoil(cluster: Cluster) -> None:
        _merge(cluster[source][number], patch)

    return spoil


def added(source: Source, item: Item) -> Spoil:
    return lambda cluster: cluster[source].append(item)


def removed(source: Source, number: int = 0) -> Spoil:
    def spoil(cluster: Cluster) -> None:
        del cluster[source][number]

    return spoil


def says(source: Source, *conditions: Item) -> Spoil:
    """An object's status has these conditions."""
    return changed(source, {"status": {"conditions": list(conditions)}})


def _merge(item: Item, patch: Item) -> None:
    for key, value in patch.items():
        if key == "conditions" and value and isinstance(item.get(key), list):
            kinds = {each["type"] for each in value}
            item[key] = [*(each for each in item[key] if each["type"] not in kinds), *value]
        elif isinstance(value, dict) and isinstance(item.get(key), dict):
            _merge(item[key], value)
        else:
            item[key] = value
