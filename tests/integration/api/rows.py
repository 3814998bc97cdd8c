"""Objects the API server must take, and objects it must refuse with the words it must use: one row per rule at least.

A row is a change to a good object: dotted paths with new values, where `GONE` removes a field.
"""

import copy
from typing import Any, Final

import msgspec

from gpu_control_plane.api.examples import approval, device, manifest, node_state
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.objects import Object

GONE: Final = object()

_LONG = "a" * 64
_MIG = {"mode": "MIG", "mig": {"profile": "1g.18gb"}}
_MIXED = {"mode": "MIG", "mig": {"layout": [{"profile": "3g.71gb", "count": 1}, {"profile": "1g.18gb", "count": 3}]}}
_TAINT = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}

GOOD: Final[dict[type[Object], dict[str, Any]]] = {
    GPUDevice: manifest(device()),
    GPUNodeState: manifest(node_state()),
    GPUPool: {"metadata": {"name": "training"}, "spec": {}},
    GPUApproval: manifest(approval()),
}


class Row(msgspec.Struct, frozen=True):
    """`says` holds words of the API server's answer; without them the object is good."""

    kind: type[Object]
    change: dict[str, object]
    says: str | None = None

    @property
    def body(self) -> dict[str, Any]:
        return changed(GOOD[self.kind], self.change)

    def __str__(self) -> str:
        where = ",".join(self.change) or "as it is"
        return f"{self.kind.__name__} {where}: {self.says or 'taken'}"


def changed(good: dict[str, Any], change: dict[str, object]) -> dict[str, Any]:
    """A copy of an object with fields at dotted paths set anew."""
    body = copy.deepcopy(good)
    for path, value in change.items():
        *parents, last = path.split(".")
        place: Any = body
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return body


TAKEN: Final = (
    Row(GPUDevice, {}),
    Row(
        GPUDevice,
        {"metadata.name": "w-10000-e1-00-0", "spec.nodeName": "w", "spec.pciAddress": "10000:e1:00.0"},
    ),
    Row(GPUNodeState, {}),
    Row(GPUNodeState, {"spec": GONE, "status": GONE}),
    Row(GPUApproval, {}),
    Row(GPUApproval, {"spec.pool": GONE, "spec.ignore": True}),
    Row(GPUPool, {}),
    Row(GPUPool, {"metadata.name": "a" * 63}),
    Row(GPUPool, {"spec.resource.name": "nvidia.com/gpu"}),
    Row(GPUPool, {"spec.resource.name": "example.com/" + "a" * 63}),
    *(
        Row(GPUPool, {"spec.allocation": {"mode": "MIG", "mig": {"profile": profile}}})
        for profile in ("1g.5gb", "7g.141gb", "1g.18gb+me", "1g.18gb.me", "1g.24gb+gfx", "1g.24gb+me.all", "2g.48gb-me")
    ),
    Row(
        GPUPool,
        {
            "spec.allocation": _MIXED,
            "spec.quotas": [{"namespace": "a", "profiles": [{"profile": "1g.18gb", "units": 2}]}],
        },
    ),
    Row(GPUPool, {"spec.allocation": {"mode": "TimeSlice", "timeSlice": {"replicas": 64}}}),
    Row(GPUPool, {"spec.assignment.requireAnnotation": False}),
    Row(GPUPool, {"spec.assignment.autoApproveSelector": {}}),
    Row(GPUPool, {"spec.access.namespaceSelector": {}}),
    Row(
        GPUPool,
        {
            "spec.access": {
                "namespaces": ["team-a", "team-b"],
                "namespaceSelector": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                "serviceAccounts": [{"namespace": "ci", "name": "runner"}],
                "users": ["alice@example.com"],
                "groups": ["ml:engineers"],
            }
        },
    ),
    Row(GPUPool, {"spec.quotas": [{"namespace": "a", "units": 0}, {"namespace": "b", "units": 8}]}),
    Row(GPUPool, {"spec.scheduling": {"strategy": "Spread", "topologyKey": "kubernetes.io/hostname"}}),
    Row(GPUPool, {"spec.scheduling.taints": [_TAINT, {**_TAINT, "effect": "PreferNoSchedule"}]}),
    *(Row(GPUPool, {"spec.scheduling.reservationTTL": ttl}) for ttl in ("10s", "90s", "1h30m", "24h")),
    *(Row(GPUPool, {"spec.maintenance": {"deadline": deadline}}) for deadline in ("10s", "90m", "24h", "720h")),
    Row(
        GPUPool,
        {
            "spec.deviceSelector": {
                "nodeSelector": {"matchLabels": {"zone": "a"}},
                "include": {
                    "vendors": ["NVIDIA"],
                    "products": ["NVIDIA H200", "*H100*"],
                    "memoryMiB": {"min": 80000, "max": 80000},
                    "computeCapability": {"min": "9.0", "max": "12.1"},
                    "migCapable": True,
                },
                "exclude": {"inventoryIDs": ["worker-3-0000-18-00-0"], "memoryMiB": {"max": 16000}},
                "maxDevicesPerNode": 4,
            }
        },
    ),
)

REFUSED: Final = (
    # GPUDevice
    Row(GPUDevice, {"metadata.name": "worker-3-gpu-4"}, "name the object worker-3-0000-9a-00-0"),
    Row(GPUDevice, {"metadata.name": "worker-3-gpu-4"}, "name the object "),
    Row(GPUDevice, {"spec": GONE}, "spec: Required value"),
    Row(GPUDevice, {"spec.nodeName": GONE}, "spec.nodeName: Required value"),
    Row(GPUDevice, {"spec.nodeName": ""}, "spec.nodeName: Invalid value"),
    Row(GPUDevice, {"spec.pciAddress": GONE}, "spec.pciAddress: Required value"),
    Row(GPUDevice, {"spec.pciAddress": "0000:9A:00.0"}, "spec.pciAddress: Invalid value"),
    Row(GPUDevice, {"spec.pciAddress": "00000000:9a:00.0"}, "spec.pciAddress: Invalid value"),
    Row(GPUDevice, {"spec.pciAddress": "9a:00.0"}, "spec.pciAddress: Invalid value"),
    # GPUNodeState
    Row(
        GPUNodeState,
        {"spec.assignments.0.inventoryID": "worker-4-0000-18-00-0"},
        "assignments may only name cards of this node",
    ),
    Row(GPUNodeState, {"spec.assignments.0.inventoryID": "worker-3-0000-2a-00-0"}, "Duplicate value"),
    Row(GPUNodeState, {"spec.assignments.0.resources": []}, "spec.assignments[0].resources: Invalid value"),
    Row(GPUNodeState, {"spec.assignments.0.allocation.mode": GONE}, "mode: Required value"),
    Row(GPUNodeState, {"spec.assignments.0.allocation.mode": "MIG"}, "mode MIG needs allocation.mig"),
    # GPUPool: names
    Row(GPUPool, {"spec": GONE}, "spec: Required value"),
    Row(GPUPool, {"metadata.name": _LONG}, "the pool's name becomes part of a resource name"),
    Row(GPUPool, {"metadata.name": "team.training"}, "the pool's name becomes part of a resource name"),
    *(
        Row(GPUPool, {"spec.resource.name": name}, "write resource.name as <domain>/<name>")
        for name in (
            "gpu",
            "example.com/",
            "/gpu",
            "Example.com/gpu",
            "example.com/a/b",
            "example.com/-gpu",
            f"example.com/{_LONG}",
        )
    ),
    *(
        Row(GPUPool, {"spec.resource.name": name}, "resources under kubernetes.io belong to Kubernetes")
        for name in ("kubernetes.io/gpu", "gpu.kubernetes.io/training")
    ),
    Row(GPUPool, {"spec.resource.name": "requests.example.com/gpu"}, "a resource name cannot begin with 'requests.'"),
    Row(
        GPUPool,
        {"metadata.name": "a" * 56, "spec.allocation": _MIXED},
        "the resources of a mixed layout are called <resource.name>.<profile>",
    ),
    Row(
        GPUPool,
        {"spec.resource.name": f"example.com/{'a' * 56}", "spec.allocation": _MIXED},
        "the resources of a mixed layout are called <resource.name>.<profile>",
    ),
    # GPUPool: which cards
    Row(GPUPool, {"spec.deviceSelector.include.vendors": ["Nvidia"]}, "supported values"),
    Row(GPUPool, {"spec.deviceSelector.include.vendors": ["AMD", "AMD"]}, "Duplicate value"),
    Row(
        GPUPool, {"spec.deviceSelector.include.memoryMiB": {"min": 2, "max": 1}}, "memoryMiB.min is above memoryMiB.max"
    ),
    Row(GPUPool, {"spec.deviceSelector.include.memoryMiB.min": -1}, "should be greater than or equal to 0"),
    *(
        Row(GPUPool, {"spec.deviceSelector.exclude.computeCapability.max": text}, "write a compute capability as text")
        for text in ("9", "9.", "9.00", "sm_9")
    ),
    Row(GPUPool, {"spec.deviceSelector.include.computeCapability.min": 9.5}, "must be of type string"),
    Row(
        GPUPool,
        {"spec.deviceSelector.include.computeCapability": {"min": "10.0", "max": "9.0"}},
        "computeCapability.min is above computeCapability.max",
    ),
    Row(GPUPool, {"spec.deviceSelector.maxDevicesPerNode": 0}, "should be greater than or equal to 1"),
    *(
        Row(
            GPUPool,
            {"spec.deviceSelector.nodeSelector.matchExpressions": [wrong]},
            "In and NotIn need at least one value",
        )
        for wrong in ({"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]})
    ),
    Row(
        GPUPool,
        {"spec.allocation": _MIG, "spec.deviceSelector.include.migCapable": False},
        "mode MIG needs cards that can be cut",
    ),
    # GPUPool: how cards are divided
    Row(GPUPool, {"spec.allocation.mode": "MPS"}, "supported values"),
    Row(GPUPool, {"spec.allocation.mode": "MIG"}, "mode MIG needs allocation.mig"),
    Row(GPUPool, {"spec.allocation.mig.profile": "1g.18gb"}, "mode MIG needs allocation.mig"),
    Row(GPUPool, {"spec.allocation.mode": "TimeSlice"}, "mode TimeSlice needs allocation.timeSlice.replicas"),
    Row(GPUPool, {"spec.allocation.timeSlice.replicas": 4}, "mode TimeSlice needs allocation.timeSlice.replicas"),
    Row(
        GPUPool, {"spec.allocation": {"mode": "TimeSlice", "timeSlice": {"replicas": 1}}}, "greater than or equal to 2"
    ),
    Row(GPUPool, {"spec.allocation": {"mode": "TimeSlice", "timeSlice": {"replicas": 65}}}, "less than or equal to 64"),
    Row(GPUPool, {"spec.allocation": {"mode": "MIG", "mig": {}}}, "give either mig.profile"),
    Row(GPUPool, {"spec.allocation": _MIXED, "spec.allocation.mig.profile": "1g.18gb"}, "give either mig.profile"),
    *(
        Row(
            GPUPool,
            {"spec.allocation": {"mode": "MIG", "mig": {"profile": profile}}},
            "write a MIG profile as the driver",
        )
        for profile in ("1g", "1g18gb", "0g.18gb", "1G.18GB", "1c.3g.71gb", "1g.18gb+you", "1g.18gb-gfx", "mig-1g.18gb")
    ),
    Row(
        GPUPool,
        {"spec.allocation": _MIXED, "spec.allocation.mig.layout.0.profile": "big"},
        "write a MIG profile as the driver",
    ),
    Row(GPUPool, {"spec.allocation": _MIXED, "spec.allocation.mig.layout.0.profile": "1g.18gb"}, "Duplicate value"),
    Row(
        GPUPool,
        {
            "spec.allocation": {
                "mode": "MIG",
                "mig": {"layout": [{"profile": "1g.18gb+me", "count": 1}, {"profile": "1g.18gb.me", "count": 1}]},
            }
        },
        "two entries of the layout name the same profile",
    ),
    Row(GPUPool, {"spec.allocation": _MIXED, "spec.allocation.mig.layout.0.count": 0}, "greater than or equal to 1"),
    # GPUPool: who approves, who may use it
    Row(
        GPUPool,
        {"spec.assignment": {"requireAnnotation": False, "autoApproveSelector": {}}},
        "requireAnnotation: false approves every matching card",
    ),
    Row(GPUPool, {"spec.access.namespaces": ["*"]}, "name one namespace at a time"),
    Row(GPUPool, {"spec.access.namespaces": ["a", "a"]}, "Duplicate value"),
    Row(GPUPool, {"spec.access.serviceAccounts": [{"namespace": "A", "name": "b"}]}, "give the name of one namespace"),
    Row(GPUPool, {"spec.access.serviceAccounts": [{"name": "b"}]}, "namespace: Required value"),
    Row(GPUPool, {"spec.quotas": [{"namespace": "a*", "units": 1}]}, "give the name of one namespace"),
    Row(GPUPool, {"spec.quotas": [{"namespace": "a"}]}, "a quota needs a limit"),
    Row(GPUPool, {"spec.quotas": [{"namespace": "a", "units": -1}]}, "should be greater than or equal to 0"),
    Row(GPUPool, {"spec.quotas": [{"namespace": "a", "units": 1}, {"namespace": "a", "units": 2}]}, "Duplicate value"),
    *(
        Row(
            GPUPool,
            {
                "spec.allocation": allocation,
                "spec.quotas": [{"namespace": "a", "profiles": [{"profile": "2g.35gb", "units": 1}]}],
            },
            "quotas by profile may only name profiles of allocation.mig.layout",
        )
        for allocation in ({}, _MIG, _MIXED)
    ),
    # GPUPool: where pods are put
    Row(GPUPool, {"spec.scheduling.strategy": "Random"}, "supported values"),
    Row(GPUPool, {"spec.scheduling.topologyKey": "zone"}, "topologyKey has a meaning with strategy Spread only"),
    Row(
        GPUPool,
        {"spec.scheduling": {"strategy": "Spread", "topologyKey": "my zone"}},
        "write topologyKey as the key of a node label",
    ),
    Row(GPUPool, {"spec.scheduling.taints": [{**_TAINT, "key": "my gpu"}]}, "write a taint key like a label key"),
    Row(
        GPUPool,
        {"spec.scheduling.taints": [{**_TAINT, "key": "node.kubernetes.io/gpu"}]},
        "kubernetes.io taints belong to Kubernetes",
    ),
    Row(GPUPool, {"spec.scheduling.taints": [{**_TAINT, "value": "a b"}]}, "write a taint value like a label value"),
    Row(GPUPool, {"spec.scheduling.taints": [{**_TAINT, "effect": "NoExecute"}]}, "supported values"),
    Row(GPUPool, {"spec.scheduling.taints": [_TAINT, _TAINT]}, "Duplicate value"),
    *(
        Row(GPUPool, {"spec.scheduling.reservationTTL": ttl}, "write reservationTTL as a duration from 10s to 24h")
        for ttl in ("", "5", "5 m", "-5m", "9s", "25h", "soon")
    ),
    Row(GPUPool, {"spec.scheduling.numa": "Required"}, "supported values"),
    *(
        Row(GPUPool, {"spec.maintenance": {"deadline": deadline}}, "write maintenance.deadline as a duration")
        for deadline in ("", "5", "9s", "721h", "soon")
    ),
    Row(GPUPool, {"spec.backend": "DRA"}, "the DRA backend does not work yet: use DevicePlugin"),
    Row(GPUPool, {"spec.backend": "CDI"}, "supported values"),
    # GPUApproval
    Row(GPUApproval, {"spec.uuid": GONE}, "spec.uuid: Required value"),
    Row(GPUApproval, {"spec.pciAddress": "9a:00.0"}, "spec.pciAddress: Invalid value"),
    Row(GPUApproval, {"spec.pool": GONE}, "say what was decided about the card"),
    Row(GPUApproval, {"spec.pool": GONE, "spec.ignore": False}, "say what was decided about the card"),
)

REFUSED_UPDATES: Final = (
    Row(GPUDevice, {"spec.nodeName": "worker-4"}, "spec.nodeName cannot be changed"),
    Row(GPUDevice, {"spec.pciAddress": "0000:9b:00.0"}, "spec.pciAddress cannot be changed"),
)
