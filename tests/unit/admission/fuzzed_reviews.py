"""AdmissionReviews about pods as an API server sends them, and as it never would; and who must be refused.

The oracle is written down a second time on purpose, from the documentation, in as few words as possible.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from unit.admission.pod_cases import pool

LARGEST: Final = 8
READY, PACKED, OWN, BUSY, GOING, SPREAD = (
    "gpu.deckhouse.io/training",
    "gpu.deckhouse.io/packed",
    "example.com/gpu",
    "gpu.deckhouse.io/busy",
    "gpu.deckhouse.io/going",
    "gpu.deckhouse.io/spread",
)
_TAINT: Final = {"key": "gpu", "value": "x", "effect": "NoSchedule"}
POOLS: Final[Mapping[str, GPUPool]] = {
    READY: pool("training"),
    PACKED: pool("packed", spec={"scheduling": {"taints": [_TAINT]}}),
    OWN: pool("own", spec={"resource": {"name": OWN}}),
    BUSY: pool("busy", status={"phase": "Maintenance"}),
    GOING: pool("going", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}),
    SPREAD: pool("spread", spec={"scheduling": {"strategy": "Spread", "taints": [_TAINT]}}),
}
_USABLE: Final = frozenset({READY, PACKED, OWN, SPREAD})
_UNKNOWN: Final = ("gpu.deckhouse.io/unknown", "gpu.deckhouse.io/", "gpu.deckhouse.io/training.1g.18gb")
_OTHERS: Final = ("cpu", "memory", "nvidia.com/gpu", "example.com/disk", "xgpu.deckhouse.io/training")
_RESOURCES: Final = (*POOLS, *POOLS, *POOLS, *_UNKNOWN, *_OTHERS)
_AMOUNTS: Final[Mapping[str, int]] = {
    **{str(count): count for count in (0, 1, 2, 4, 8, 9)},
    "1k": 1000,
    "1e1": 10,
    "16Ei": 2**64,
}
_NO_AMOUNTS: Final = ("", "-", "one", "1e999999999", "0x1", "\u0661", "1 ", "NaN", "Infinity")
_JUNK: Final[tuple[Any, ...]] = (None, 0, -1, 1.5, "", "x", [], {}, [None], ["x"], {"x": None}, True)


def node() -> GPUNodeState:
    """A node that has eight units of every pool's resource."""
    orders = [
        {
            "inventoryID": f"node-{number}-{card}",
            "pool": "any",
            "resources": [{"name": resource, "units": 1}],
            "allocation": {"mode": "Exclusive"},
        }
        for number, resource in enumerate(POOLS)
        for card in range(LARGEST)
    ]
    return msgspec.convert({"metadata": {"name": "node"}, "spec": {"assignments": orders}}, GPUNodeState)


def fuzzed_review(rng: random.Random) -> tuple[bytes, bool | None]:
    """A review, and whether its pod has to be let in; None where no API server would send it."""
    pod, sound = _pod(rng)
    operation = "CREATE" if rng.random() < 0.95 else rng.choice(("UPDATE", "DELETE", "CONNECT", "PATCH"))
    request: dict[str, Any] = {"uid": f"{rng.getrandbits(64):x}", "operation": operation, "object": pod}
    if rng.random() < 0.1:
        request |= {"dryRun": rng.random() < 0.5, "namespace": "team", "userInfo": {"username": "x"}}
    review: dict[str, Any] = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    if rng.random() < 0.05:
        _damage(rng, review)
        return msgspec.json.encode(review), None
    body = msgspec.json.encode(review)
    if rng.random() < 0.05:
        start = rng.randrange(len(body))
        return body[:start] + rng.randbytes(rng.randrange(4)) + body[start + rng.randrange(4) :], None
    if not sound or operation != "CREATE":
        return body, None
    return body, _must_be_let_in(pod)


def _pod(rng: random.Random) -> tuple[dict[str, Any], bool]:
    sound = True
    amounts = list(_AMOUNTS)

    def container(name: str) -> dict[str, Any]:
        nonlocal sound
        names = rng.sample(_RESOURCES, rng.randrange(3))
        limits = {each: rng.choices(amounts, [3, *[8] * 5, 3, 1, 1][: len(amounts)])[0] for each in names}
        if names and rng.random() < 0.03:
            limits[rng.choice(names)] = rng.choice(_NO_AMOUNTS)
            sound = False
        made: dict[str, Any] = {"name": name, "resources": {"limits": limits}}
        if rng.random() < 0.2:
            made["restartPolicy"] = rng.choice(("Always", "Never"))
        return made

    spec: dict[str, Any] = {"containers": [container(f"c{number}") for number in range(rng.randrange(1, 4))]}
    if rng.random() < 0.3:
        spec["initContainers"] = [container(f"i{number}") for number in range(rng.randrange(3))]
    for field, values in _OPTIONAL.items():
        if rng.random() < 0.15:
            spec[field] = rng.choice(values)
    metadata: dict[str, Any] = {"generateName": "x-"}
    if rng.random() < 0.2:
        metadata["labels"] = rng.choice(({"gpu.deckhouse.io/pool": "mine"}, {"a": "b"}))
    if rng.random() < 0.2:
        metadata["annotations"] = rng.choice(({"gpu.deckhouse.io/reservation": "mine"}, {}))
    # Through the wire and back: what is shared above must not be shared in the pod.
    pod: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    if rng.random() < 0.05:
        _damage(rng, pod)
        sound = False
    return pod, sound


_OPTIONAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "tolerations": ([{"operator": "Exists"}], [{"key": "gpu", "value": "x"}], []),
    "affinity": ({"podAffinity": {}}, {"nodeAffinity": {}}, {}),
    "topologySpreadConstraints": (
        [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2}],
        [],
    ),
    "nodeName": ("node",),
    "schedulingGates": ([{"name": "x"}],),
}


def _damage(rng: random.Random, document: dict[str, Any]) -> None:
    """Put something else in place of some value, however deep."""
    at: Any = document
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(at[key], dict | list) or rng.random() < 0.2:
            at[key] = rng.choice(_JUNK)
            return
        at = at[key]


def _must_be_let_in(pod: Mapping[str, Any]) -> bool:
    spec = pod["spec"]
    containers, init = spec["containers"], spec.get("initContainers") or []
    names = {name for each in (*containers, *init) for name in each["resources"]["limits"]}

    def asks(container: Mapping[str, Any], name: str) -> int:
        return _AMOUNTS[container["resources"]["limits"].get(name, "0")]

    def needed(name: str) -> int:
        moments, sidecars = [], 0
        for each in init:
            moments.append(sidecars + asks(each, name))
            sidecars += asks(each, name) if each.get("restartPolicy") == "Always" else 0
        return max(*moments, sidecars + sum(asks(each, name) for each in containers), 0)

    ours = [name for name in names if (name.startswith("gpu.deckhouse.io/") or name == OWN) and needed(name)]
    return all(name in _USABLE and needed(name) <= LARGEST for name in ours)
