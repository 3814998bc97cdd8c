"""Which Pods are refused, with the sentence that a person sees, and with what others are let in."""

import copy
from typing import Any

import pytest

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.json_patch import Json
from unit.admission.pod_cases import TOKEN, TRAINING, pod, pool, review, reviewed

MIXED = {
    "allocation": {
        "mode": "MIG",
        "mig": {"layout": [{"profile": "1g.18gb", "count": 3}, {"profile": "3g.71gb+me", "count": 1}]},
    }
}
OWN_NAME = {"resource": {"name": "example.com/gpu"}}
NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "X",
    "message": "3 units are in use",
    "lastTransitionTime": "2026-01-01T12:00:00Z",
}
WAITS = "the pod waits: it asks for 1 of gpu.deckhouse.io/training, and 0 of 8 are free"
LET_IN: str | None = None


@pytest.mark.parametrize(
    ("asked", "offered", "sentence"),
    [
        pytest.param({TRAINING: "1"}, pool(), LET_IN, id="a card"),
        pytest.param({TRAINING: "8"}, pool(), LET_IN, id="a whole node"),
        pytest.param({TRAINING: "0"}, None, LET_IN, id="none of a pool that is not there"),
        pytest.param({"nvidia.com/gpu": "1"}, None, LET_IN, id="a resource of others"),
        pytest.param({"cpu": "1"}, None, LET_IN, id="no card"),
        pytest.param({"example.com/gpu": "1"}, pool(spec=OWN_NAME), LET_IN, id="own name"),
        pytest.param({TRAINING: "4"}, pool(free=0), LET_IN, id="nothing free: it waits"),
        pytest.param({TRAINING: "1"}, pool(status={"phase": "Misconfigured"}), LET_IN, id="misconfigured: it waits"),
        pytest.param({TRAINING: "1"}, pool(status={"phase": "Pending", "capacity": []}), LET_IN, id="no cards yet"),
        pytest.param(
            {"gpu.deckhouse.io/trainig": "1"},
            pool(),
            "The pod asks for gpu.deckhouse.io/trainig, which no GPU pool offers. What there is: kubectl get gpupools"
            " -o wide. A pool that was just made can be used in a moment.",
            id="a typo",
        ),
        pytest.param(
            {TRAINING: "1"},
            pool(spec=MIXED),
            "The pod asks for gpu.deckhouse.io/training, but the GPU pool training offers gpu.deckhouse.io/"
            "training.1g.18gb, gpu.deckhouse.io/training.3g.71gb.me. Ask for one of these.",
            id="a card of a pool that offers parts",
        ),
        pytest.param(
            {f"{TRAINING}.1g.18gb": "9"},
            pool(spec=MIXED),
            "The pod asks for 9 units of gpu.deckhouse.io/training.1g.18gb, and no node has more than 8. Ask for at"
            " most 8, or share the work among several pods.",
            id="more parts than a node has",
        ),
        pytest.param(
            {TRAINING: "9"},
            pool(free=800, total=800),
            "The pod asks for 9 units of gpu.deckhouse.io/training, and no node has more than 8. Ask for at most 8,"
            " or share the work among several pods.",
            id="more than a node has",
        ),
        pytest.param(
            {TRAINING: "1k"},
            pool(),
            "The pod asks for 1000 units of gpu.deckhouse.io/training, and no node has more than 8. Ask for at most 8,"
            " or share the work among several pods.",
            id="an amount with a suffix",
        ),
        pytest.param(
            {TRAINING: "1"},
            pool(status={"phase": "Maintenance", "conditions": [NOT_READY]}),
            "The GPU pool training is in maintenance: 3 units are in use. Create the pod again when `kubectl get"
            " gpupool training` shows Ready.",
            id="maintenance",
        ),
        pytest.param(
            {TRAINING: "1"},
            pool(status={"phase": "Maintenance"}),
            "The GPU pool training is in maintenance. Create the pod again when `kubectl get gpupool training` shows"
            " Ready.",
            id="maintenance without a word",
        ),
        pytest.param(
            {TRAINING: "1"},
            pool(metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            "The GPU pool training is being deleted. Ask for another one: kubectl get gpupools.",
            id="a pool that goes",
        ),
    ],
)  # fmt: skip
def test_only_what_waiting_cannot_cure_is_refused(
    asked: dict[str, str], offered: GPUPool | None, sentence: str | None
) -> None:
    response = review(pod(asked), *([offered] if offered else []))
    assert (response.allowed, response.message) == (sentence is None, sentence or "")


@pytest.mark.parametrize(
    "document",
    [pod({TRAINING: "5"}, {TRAINING: "4"}), pod({}, init=({TRAINING: "9"},))],
    ids=["containers together", "an init container"],
)
def test_units_of_all_containers_count(document: dict[str, Json]) -> None:
    assert not review(document, pool()).allowed


def test_a_pool_without_any_node_may_get_one() -> None:
    assert review(pod({TRAINING: "100"}), pool(), largest=0).allowed


def test_a_pod_of_several_pools_is_judged_by_each() -> None:
    both = pod({TRAINING: "1", "gpu.deckhouse.io/serving": "1"})
    assert "serving, which no GPU pool offers" in review(both, pool()).message


@pytest.mark.parametrize(
    ("offered", "warning"),
    [
        (pool(free=0), WAITS),
        (pool(status={"capacity": []}), WAITS.replace("8", "0")),
        (
            pool(status={"phase": "Misconfigured", "conditions": [NOT_READY]}),
            "the GPU pool training is misconfigured, so the pod may have to wait: 3 units are in use",
        ),
    ],
    ids=["nothing free", "no cards", "misconfigured"],
)
def test_a_pod_that_waits_is_told_so_at_once(offered: GPUPool, warning: str) -> None:
    assert review(pod({TRAINING: "1"}), offered).warnings == (warning,)


def test_a_pod_gets_a_label_and_a_token() -> None:
    made = reviewed(pod({TRAINING: "1"}), pool())
    assert made["metadata"]["labels"] == {"gpu.deckhouse.io/pool": "training"}
    assert made["metadata"]["annotations"] == {"gpu.deckhouse.io/reservation": TOKEN}


def test_of_several_pools_the_label_names_the_one_most_is_asked_of() -> None:
    both = pod({TRAINING: "1", "gpu.deckhouse.io/serving": "2"})
    assert reviewed(both, pool(), pool("serving"))["metadata"]["labels"] == {"gpu.deckhouse.io/pool": "serving"}


def test_a_label_that_is_there_stays_and_is_warned_about() -> None:
    """A ReplicaSet whose Pods lose a label it selects by would create Pods without end."""
    named = pod({TRAINING: "1"}, labels={"gpu.deckhouse.io/pool": "mine"})
    response = review(named, pool())
    assert response.document is not None
    assert response.document["metadata"]["labels"] == {"gpu.deckhouse.io/pool": "mine"}  # type: ignore[index, call-overload]
    assert "says mine, but the pod asks for the GPU pool training" in response.warnings[0]


def test_pods_without_a_pool_are_left_as_they_are() -> None:
    document = pod({"nvidia.com/gpu": "1"})
    assert reviewed(copy.deepcopy(document), pool()) == document


def near(name: str = "training") -> dict[str, Any]:
    return {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"gpu.deckhouse.io/pool": name}},
            "namespaceSelector": {},
        },
    }


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"scheduling": {"strategy": "Spread"}}


def spread_over(key: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"gpu.deckhouse.io/pool": "training"}},
    }


def test_bin_pack_prefers_nodes_with_pods_of_the_pool_in_whichever_namespace() -> None:
    assert reviewed(pod({TRAINING: "1"}), pool())["spec"]["affinity"] == {"podAffinity": {PREFERRED: [near()]}}


def test_affinity_of_the_pod_stays() -> None:
    own = {"nodeAffinity": {"x": 1}, "podAffinity": {PREFERRED: [{"weight": 1}], "required": [1]}}
    affinity = reviewed(pod({TRAINING: "1"}, spec={"affinity": own}), pool())["spec"]["affinity"]
    assert affinity == {**own, "podAffinity": {PREFERRED: [{"weight": 1}, near()], "required": [1]}}


def test_spread_keeps_pods_apart_in_zones_and_on_nodes() -> None:
    spec = reviewed(pod({TRAINING: "1"}), pool(spec=SPREAD))["spec"]
    keys = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    assert spec["topologySpreadConstraints"] == [spread_over(key) for key in keys]
    assert "affinity" not in spec


def test_spread_over_another_topology() -> None:
    racks = {"scheduling": {"strategy": "Spread", "topologyKey": "example.com/rack"}}
    spec = reviewed(pod({TRAINING: "1"}), pool(spec=racks))["spec"]
    assert spec["topologySpreadConstraints"] == [spread_over("example.com/rack")]


def test_a_soft_constraint_of_the_pod_for_the_same_topology_stays_alone() -> None:
    """Kubernetes refuses a second one."""
    own = {**spread_over("kubernetes.io/hostname"), "maxSkew": 3}
    hard = {**spread_over("topology.kubernetes.io/zone"), "whenUnsatisfiable": "DoNotSchedule"}
    spec = reviewed(pod({TRAINING: "1"}, spec={"topologySpreadConstraints": [own, hard]}), pool(spec=SPREAD))["spec"]
    assert spec["topologySpreadConstraints"] == [own, hard, spread_over("topology.kubernetes.io/zone")]


TAINT = {"key": "example.com/gpu", "value": "training", "effect": "NoSchedule"}
TAINTED = {"scheduling": {"taints": [TAINT, {"key": "slow", "effect": "PreferNoSchedule"}]}}
TOLERATED = [
    {"key": "example.com/gpu", "effect": "NoSchedule", "operator": "Equal", "value": "training"},
    {"key": "slow", "effect": "PreferNoSchedule", "operator": "Equal", "value": ""},
]


def test_taints_of_the_pool_are_tolerated_and_no_others() -> None:
    assert reviewed(pod({TRAINING: "1"}), pool(spec=TAINTED))["spec"]["tolerations"] == TOLERATED


def test_taints_of_every_pool_are_tolerated() -> None:
    both = pod({TRAINING: "1", "gpu.deckhouse.io/serving": "2"})
    serving = pool("serving", spec={"scheduling": {"taints": [{"key": "serving", "effect": "NoSchedule"}]}})
    keys = [each["key"] for each in reviewed(both, pool(spec=TAINTED), serving)["spec"]["tolerations"]]
    assert keys == ["serving", "example.com/gpu", "slow"]


@pytest.mark.parametrize(
    ("toleration", "enough"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "example.com/gpu", "operator": "Exists"}, True),
        ({"key": "example.com/gpu", "value": "training"}, True),
        ({"key": "example.com/gpu", "value": "training", "effect": "NoSchedule"}, True),
        ({"key": "example.com/gpu", "value": "other"}, False),
        ({"key": "example.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "training"}, False),
    ],
)
def test_what_is_tolerated_already_is_not_added(toleration: dict[str, str], enough: bool) -> None:
    tainted = pool(spec={"scheduling": {"taints": [TAINT]}})
    made = reviewed(pod({TRAINING: "1"}, spec={"tolerations": [toleration]}), tainted)
    assert (len(made["spec"]["tolerations"]) == 1) is enough


@pytest.mark.parametrize("scheduling", [TAINTED, SPREAD], ids=["bin-pack", "spread"])
def test_reviewing_again_changes_nothing(scheduling: dict[str, Any]) -> None:
    once = reviewed(pod({TRAINING: "1"}), pool(spec=scheduling))
    assert reviewed(copy.deepcopy(once), pool(spec=scheduling)) == once


@pytest.mark.parametrize(
    "broken",
    [
        {"affinity": {"podAffinity": 1}},
        {"affinity": {"podAffinity": {PREFERRED: {}}}},
        {"tolerations": ["all"]},
        {"tolerations": "all"},
    ],
)
def test_what_is_no_pod_is_left_to_the_api_server(broken: dict[str, Any]) -> None:
    response = review(pod({TRAINING: "1"}, spec=broken), pool(spec=TAINTED))
    assert (response.allowed, response.document) == (True, None)
